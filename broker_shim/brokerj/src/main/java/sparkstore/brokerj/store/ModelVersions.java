package sparkstore.brokerj.store;

import java.util.Map;
import org.apache.qpid.server.model.BrokerModel;
import org.apache.qpid.server.model.ModelVersion;
import org.apache.qpid.server.store.StoreException;

/** The broker's model version that links and preferences were written by. */
public final class ModelVersions {
    private ModelVersions() {
    }

    /**
     * The version that is stored, if it is older than the broker's: what is there must be updated.
     *
     * @return null if there is nothing to update; the first time, the broker's version is noted
     * @throws StoreException it is newer: a downgrade is not possible
     */
    public static String stored(StoreSession session, String key) {
        String json = session.configured().get(ConfiguredObjects.BROKERJ, key);
        if (json == null) {
            update(session, key);
            return null;
        }
        ModelVersion stored = ModelVersion.fromString((String) Json.read(json).get("version"));
        ModelVersion current = ModelVersion.fromString(BrokerModel.MODEL_VERSION);
        if (current.lessThan(stored)) {
            throw new StoreException("the " + key + " of the store is " + stored
                    + ", this broker's is " + current + ": use a newer broker");
        }
        return stored.lessThan(current) ? stored.toString() : null;
    }

    /** Note that everything is in the broker's version now. */
    public static void update(StoreSession session, String key) {
        session.configure(ConfiguredObjects.BROKERJ,
                Map.of(key, Json.write(Map.of("version", BrokerModel.MODEL_VERSION))));
    }
}
