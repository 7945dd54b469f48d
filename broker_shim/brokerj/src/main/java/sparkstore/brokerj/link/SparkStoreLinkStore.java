package sparkstore.brokerj.link;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.qpid.server.protocol.v1_0.LinkDefinition;
import org.apache.qpid.server.protocol.v1_0.LinkDefinitionImpl;
import org.apache.qpid.server.protocol.v1_0.store.AbstractLinkStore;
import org.apache.qpid.server.protocol.v1_0.store.LinkStoreUpdater;
import org.apache.qpid.server.protocol.v1_0.store.LinkStoreUtils;
import org.apache.qpid.server.protocol.v1_0.type.messaging.Source;
import org.apache.qpid.server.protocol.v1_0.type.messaging.Target;
import org.apache.qpid.server.protocol.v1_0.type.messaging.TerminusDurability;
import org.apache.qpid.server.protocol.v1_0.type.transport.Role;
import org.apache.qpid.server.store.StoreException;
import sparkstore.brokerj.store.LinkRecords;
import sparkstore.brokerj.store.ModelVersions;
import sparkstore.brokerj.store.StoreSession;

/**
 * AMQP 1.0 links that outlive a connection (durable subscriptions) as configured objects of category
 * {@code link}. A link is durable when {@link #saveLink} returns.
 *
 * <p>Detail: JSON with container, name, role ("sender" or "receiver", the broker's end), source and
 * target in AMQP encoding, Base64. Key: container, name and role, each Base64, joined by dots, so
 * that no character of a name can make two links one.
 *
 * <p>Highest durability CONFIGURATION: the broker lowers UNSETTLED_STATE to it for every store.
 */
final class SparkStoreLinkStore extends AbstractLinkStore {
    private static final Base64.Encoder BASE64 = Base64.getUrlEncoder().withoutPadding();
    private final Supplier<StoreSession> sessions;

    SparkStoreLinkStore(Supplier<StoreSession> sessions) {
        this.sessions = sessions;
    }

    @Override
    protected Collection<LinkDefinition<Source, Target>> doOpenAndLoad(LinkStoreUpdater updater) {
        StoreSession session = sessions.get();
        Collection<LinkDefinition<Source, Target>> links = new ArrayList<>();
        LinkRecords.all(session).values().forEach(detail -> links.add(link(detail)));
        String stored = ModelVersions.stored(session, LinkRecords.VERSION_KEY);
        if (stored == null) {
            return links;
        }
        Collection<LinkDefinition<Source, Target>> updated = updater.update(stored, links);
        Map<String, Map<String, Object>> changes = new LinkedHashMap<>();
        links.forEach(link -> changes.put(key(link), null));
        updated.forEach(link -> changes.put(key(link), detail(link)));
        LinkRecords.change(session, changes);
        ModelVersions.update(session, LinkRecords.VERSION_KEY);
        return updated;
    }

    @Override
    protected void doSaveLink(LinkDefinition<Source, Target> link) {
        LinkRecords.change(sessions.get(), Map.of(key(link), detail(link)));
    }

    @Override
    protected void doDeleteLink(LinkDefinition<Source, Target> link) {
        Map<String, Map<String, Object>> change = new LinkedHashMap<>();
        change.put(key(link), null);
        LinkRecords.change(sessions.get(), change);
    }

    @Override
    protected void doClose() {
        // The session is the configuration store's.
    }

    /**
     * The virtual host is deleted, and its links with it; its node may get another one. If the node
     * itself is deleted, its store is closed by now, and {@code onDelete} empties the root.
     */
    @Override
    protected void doDelete() {
        StoreSession session;
        try {
            session = sessions.get();
        } catch (StoreException closed) {
            return;
        }
        LinkRecords.removeAll(session);
    }

    @Override
    public TerminusDurability getHighestSupportedTerminusDurability() {
        return TerminusDurability.CONFIGURATION;
    }

    private static String key(LinkDefinition<Source, Target> link) {
        return text(link.getRemoteContainerId()) + "." + text(link.getName()) + "."
                + role(link.getRole());
    }

    private static String text(String value) {
        return BASE64.encodeToString(value.getBytes(StandardCharsets.UTF_8));
    }

    private static String role(Role role) {
        return Role.SENDER.equals(role) ? "sender" : "receiver";
    }

    private static Map<String, Object> detail(LinkDefinition<Source, Target> link) {
        Map<String, Object> detail = new LinkedHashMap<>();
        detail.put("container", link.getRemoteContainerId());
        detail.put("name", link.getName());
        detail.put("role", role(link.getRole()));
        detail.put("source", encoded(link.getSource()));
        detail.put("target", encoded(link.getTarget()));
        return detail;
    }

    private static LinkDefinition<Source, Target> link(Map<String, Object> detail) {
        return new LinkDefinitionImpl<>((String) detail.get("container"),
                (String) detail.get("name"),
                "sender".equals(detail.get("role")) ? Role.SENDER : Role.RECEIVER,
                (Source) decoded(detail.get("source")), (Target) decoded(detail.get("target")));
    }

    private static String encoded(Object terminus) {
        return terminus == null ? null
                : BASE64.encodeToString(LinkStoreUtils.objectToAmqpBytes(terminus));
    }

    private static Object decoded(Object encoded) {
        return encoded == null ? null
                : LinkStoreUtils.amqpBytesToObject(Base64.getUrlDecoder().decode((String) encoded));
    }
}
