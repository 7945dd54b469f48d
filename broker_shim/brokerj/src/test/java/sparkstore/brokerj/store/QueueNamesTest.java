package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.UUID;
import org.junit.jupiter.api.Test;
import sparkstore.brokerj.service.Recovery;

/** Which queue is which, over what the service tells. */
class QueueNamesTest {
    @Test
    void aQueueThatWasAlteredIsCreatedAgainAsItIsNow() {
        UUID id = UUID.fromString("00000000-0000-0000-0000-000000000007");
        String altered = "{\"arguments\": {\"brokerj_id\": \"" + id
                + "\", \"message_ttl_ms\": 5}, \"durability\": 2}";
        QueueNames names = new QueueNames();
        names.recovered(new Recovery.Wiring("queue", "orders", altered));
        names.doubt(id);
        assertEquals(altered, names.definition(id));
        assertEquals("orders", names.free(id, "orders"));
    }
}
