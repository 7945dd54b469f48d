package sparkstore.brokerj.node;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.qpid.server.configuration.updater.Task;
import org.apache.qpid.server.model.Broker;

/**
 * The node as the broker uses it: the two managed operations of a node that change it run on the
 * configuration thread. What codegen would write; a node has no operation that needs an ACL check.
 */
final class SparkStoreVirtualHostNodeImplWithAccessChecking extends SparkStoreVirtualHostNodeImpl {
    SparkStoreVirtualHostNodeImplWithAccessChecking(
            Map<String, Object> attributes, Broker<?> parent) {
        super(attributes, parent);
    }

    @Override
    public String setContextVariable(String name, String value) {
        return onConfigThread("setContextVariable", "name=" + name + ",value=" + value,
                () -> super.setContextVariable(name, value));
    }

    @Override
    public String removeContextVariable(String name) {
        return onConfigThread("removeContextVariable", "name=" + name,
                () -> super.removeContextVariable(name));
    }

    private String onConfigThread(String action, String arguments, Supplier<String> call) {
        return doSync(doOnConfigThread(new Task<CompletableFuture<String>, RuntimeException>() {
            @Override
            public CompletableFuture<String> execute() {
                return CompletableFuture.completedFuture(call.get());
            }

            @Override
            public String getObject() {
                return SparkStoreVirtualHostNodeImplWithAccessChecking.this.toString();
            }

            @Override
            public String getAction() {
                return action;
            }

            @Override
            public String getArguments() {
                return arguments;
            }
        }));
    }
}
