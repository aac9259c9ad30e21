import { ServiceSchema, type Service } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { toMessageJson } from '../../call/cli-session.js';
import { readServiceFlags } from '../../flags/service-flags.js';
import { changeEach } from '../change-each.js';
import { requireOperand } from '../options.js';
import { formatServiceName, parseServiceName, printServiceStatus } from './find-service.js';

/** Creates a service from flags. */
export async function createService(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name');
  const name = parseServiceName(text, session.settings.namespace);
  const { spec, labels, loadBalancer, loadBalancerPaths } = readServiceFlags(invocation);
  if (spec.externalName === '' && spec.ports.length === 0)
    throw createUsageFailure('give at least one --port, such as --port 80, or --external-name');
  const service = await session.network.createService(
    {
      ...name,
      spec,
      labels: { ...labels },
      ...(loadBalancerPaths.length === 0 ? {} : { loadBalancer }),
      requestId: session.getRequestId(),
    },
    session.getCallOptions(),
  );
  await reportService(invocation, service, 'created');
}

/** Changes the fields of a service for which flags are given. */
export async function updateService(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const text = requireOperand(invocation, 0, 'name of the service');
  const name = parseServiceName(text, session.settings.namespace);
  const patch = readServiceFlags(invocation);
  const { specPaths, loadBalancerPaths, labels } = patch;
  const changesSpec = specPaths.length > 0 || Object.keys(labels).length > 0;
  if (!changesSpec && loadBalancerPaths.length === 0)
    throw createUsageFailure('nothing to change: give at least one flag');
  let service: Service | undefined;
  if (changesSpec) {
    service = await session.network.updateService(
      {
        ...name,
        ...(specPaths.length === 0
          ? {}
          : { spec: patch.spec, updateMask: { paths: [...specPaths] } }),
        labels: { ...labels },
        requestId: session.getRequestId(loadBalancerPaths.length > 0 ? 'spec' : undefined),
      },
      session.getCallOptions(),
    );
  }
  if (loadBalancerPaths.length > 0) {
    await session.network.updateLoadBalancerConfig(
      {
        namespace: name.namespace,
        service: name.name,
        config: patch.loadBalancer,
        updateMask: { paths: [...loadBalancerPaths] },
        requestId: session.getRequestId(changesSpec ? 'load-balancer' : undefined),
      },
      session.getCallOptions(),
    );
    service = await session.network.getService(name, session.getCallOptions());
  }
  if (service !== undefined) await reportService(invocation, service, 'updated');
}

/** Deletes services. */
export async function deleteServices(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const names = invocation.operands.map((text) =>
    parseServiceName(text, session.settings.namespace),
  );
  const deleted = await changeEach(session, names, {
    describe: formatServiceName,
    change: async (name, requestId) => {
      await session.network.deleteService({ ...name, requestId }, session.getCallOptions());
      await session.printStatus(`${formatServiceName(name)}: deleted`);
    },
  });
  deleted.throwFailure();
}

async function reportService(
  { session }: Invocation,
  service: Service,
  change: string,
): Promise<void> {
  await printServiceStatus(session, service, change);
  if (session.isStructured) await session.printValue(toMessageJson(ServiceSchema, service));
}
