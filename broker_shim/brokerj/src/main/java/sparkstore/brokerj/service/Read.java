package sparkstore.brokerj.service;

import sparkstore.brokerj.wire.Unpacker;

/** A question that may be asked again as often as a connection is lost. */
final class Read extends Outgoing {
    final Answer answer;

    Read(int type, int elementCount, byte[] rest, Answer answer) {
        super(type, elementCount, rest.length, () -> rest);
        this.answer = answer;
    }

    /** Takes the answers of a read, on the reading thread: it must be quick and must not wait. */
    interface Answer {
        /** One ANSWER; {@code body} stands after its read number and {@code isLast}. */
        void take(Unpacker body, boolean isLast);

        /** No more answers come. */
        void fail(RuntimeException failure);

        /** The connection was lost: the answers begin again from the first. */
        default void restart() {
        }
    }
}
