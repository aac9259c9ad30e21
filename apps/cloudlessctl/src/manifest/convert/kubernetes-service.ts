import { addLabels, declarePort, listPorts, toServicePort } from './converted-object.js';
import type { ConvertedDocument, ConvertedWorkload } from './converted-object.js';
import { takeMetadata } from './kubernetes-metadata.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';

const SERVICE_REASONS: Readonly<Record<string, string>> = {
  loadBalancerClass: 'no load balancer is created',
  loadBalancerIP: 'set spec.externalIps to addresses that your network leads to nodes',
  loadBalancerSourceRanges: 'limit the clients in the firewall of the nodes',
};

const EXTERNAL_NAME_REASONS: Readonly<Record<string, string>> = {
  ports: 'clients connect to the ports of the external name',
};

/**
 * Converts a Service. The names of services are DNS labels in Kubernetes too.
 * @param workloads - The converted workloads, to which the ports that the service leads to are added.
 */
export function convertService(
  object: SourceMap,
  workloads: readonly ConvertedWorkload[],
): ConvertedDocument {
  const { namespace, name, labels, annotations } = takeMetadata(object, 'service');
  annotations.finish();
  const source = object.takeMap('spec');
  object.finish();
  const type = source.takeText('type') ?? 'ClusterIP';
  const externalName = source.takeText('externalName');
  source.ignore('ipFamilies', 'ipFamilyPolicy', 'allocateLoadBalancerNodePorts', 'clusterIPs');
  const candidates = workloads.filter(
    (workload) => (workload.namespace ?? 'default') === (namespace ?? 'default'),
  );
  const spec =
    type === 'ExternalName' ? { externalName } : convertReplicaService(source, type, candidates);
  source.finish(type === 'ExternalName' ? EXTERNAL_NAME_REASONS : SERVICE_REASONS);
  return { kind: 'Service', namespace, name, body: withoutEmpty({ labels, spec }) };
}

/** Converts the spec of a service whose endpoints are replicas. */
function convertReplicaService(
  source: SourceMap,
  type: string,
  candidates: readonly ConvertedWorkload[],
): Record<string, unknown> {
  const headless = isHeadless(source);
  const { fields, selected } = selectWorkloads(source, candidates);
  const externalIps = source.takeTexts('externalIPs');
  const ports = source.takeMaps('ports').flatMap((port) => convertPort(port, selected));
  for (const key of ['internalTrafficPolicy', 'externalTrafficPolicy'])
    if ((source.takeText(key) ?? 'Cluster') !== 'Cluster')
      source.note(
        key,
        'has no equivalent: the nearest endpoints are preferred, also by node ports',
      );
  if (source.takeFlag('publishNotReadyAddresses') === true)
    source.note('publishNotReadyAddresses', 'has no equivalent: only ready replicas are endpoints');
  return withoutEmpty({
    type: convertType(source, type, externalIps),
    ports: ports.length > 0 || !headless ? ports : selected.slice(0, 1).flatMap(toHeadlessPorts),
    ...fields,
    headless: headless ? true : undefined,
    ...convertAffinity(source, headless),
    externalIps,
  });
}

function isHeadless(source: SourceMap): boolean {
  const clusterIp = source.takeText('clusterIP') ?? '';
  if (clusterIp !== '' && clusterIp !== 'None')
    source.note('clusterIP', `${clusterIp} was left out: the cluster chooses the address`);
  return clusterIp === 'None';
}

function convertType(
  source: SourceMap,
  type: string,
  externalIps: readonly string[],
): string | undefined {
  if (type === 'LoadBalancer') {
    source.note(
      'type',
      'no load balancer is created: lead yours to the node ports, or set spec.externalIps',
    );
    return 'LOAD_BALANCER';
  }
  if (externalIps.length > 0) {
    source.note('externalIPs', `the type ${type} became LOAD_BALANCER, which has node ports too`);
    return 'LOAD_BALANCER';
  }
  if (type !== 'ClusterIP' && type !== 'NodePort') source.note('type', `${type} has no equivalent`);
  return type === 'NodePort' ? 'NODE_PORT' : undefined;
}

/**
 * Selects workloads by the labels of their pods. One workload is named, because the labels of pods
 * may differ from those of the workload.
 */
function selectWorkloads(
  source: SourceMap,
  candidates: readonly ConvertedWorkload[],
): {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly selected: readonly ConvertedWorkload[];
} {
  const selector = source.takeMap('selector').takePairs();
  const pairs = Object.entries(selector);
  if (pairs.length === 0) {
    source.note(
      'selector',
      'is missing: the service leads to the addresses that the call RegisterEndpoint adds',
    );
    return { fields: {}, selected: [] };
  }
  const selected = candidates.filter(({ podLabels }) =>
    pairs.every(([key, value]) => podLabels[key] === value),
  );
  const [only] = selected;
  if (selected.length === 1 && only !== undefined)
    return { fields: { workload: only.name }, selected };
  const names = selected.map(({ name }) => name).join(', ');
  if (selected.length === 0)
    source.note(
      'selector',
      'matches no workload of this input: give these labels to the workload, or name the workload in spec.workload',
    );
  else
    source.note(
      'selector',
      `matches the workloads ${names}, which have the labels of the selector now`,
    );
  for (const workload of selected)
    for (const key of addLabels(workload, selector))
      source.note('selector', `the workload ${workload.name} has another label ${key}: change it`);
  return { fields: { selector }, selected };
}

function convertPort(
  source: SourceMap,
  selected: readonly ConvertedWorkload[],
): readonly Record<string, unknown>[] {
  const port = source.takeInteger('port');
  const targetPort = source.takeText('targetPort') ?? (port === undefined ? '' : String(port));
  const protocol = source.takeText('protocol') ?? 'TCP';
  const fields = {
    ...{ name: source.takeText('name'), port, targetPort },
    nodePort: source.takeInteger('nodePort'),
    protocol: protocol === 'UDP' ? ('UDP' as const) : undefined,
  };
  source.ignore('appProtocol');
  source.finish();
  if (protocol !== 'TCP' && protocol !== 'UDP') {
    source.note('protocol', `the port was left out: ${protocol} has no equivalent`);
    return [];
  }
  for (const workload of selected) {
    if (/^\d+$/.test(targetPort)) {
      const isAdded = declarePort(workload, Number(targetPort), fields.protocol);
      // Without a probe, replicas are ready when all declared TCP ports accept connections.
      if (isAdded && fields.protocol === undefined && workload.spec['readinessProbe'] === undefined)
        source.note(
          'targetPort',
          `the workload ${workload.name} declares the port ${targetPort} now, and a replica is ready only when the port accepts connections; a readinessProbe decides otherwise`,
        );
    } else if (!listPorts(workload).some(({ name }) => name === targetPort))
      source.note(
        'targetPort',
        `the workload ${workload.name} has no port with the name ${targetPort}: declare the port in spec.ports`,
      );
  }
  return [withoutEmpty(fields)];
}

/** Returns the declared ports of a workload, for a headless service without ports. */
function toHeadlessPorts(workload: ConvertedWorkload): readonly Record<string, unknown>[] {
  return listPorts(workload).map(toServicePort);
}

function convertAffinity(source: SourceMap, headless: boolean): Record<string, unknown> {
  const affinity = source.takeText('sessionAffinity') ?? 'None';
  const config = source.takeMap('sessionAffinityConfig');
  const client = config.takeMap('clientIP');
  const seconds = client.takeInteger('timeoutSeconds');
  client.finish();
  config.finish();
  if (affinity !== 'ClientIP') return {};
  if (headless) {
    source.note('sessionAffinity', 'left out: connections to a headless service are not balanced');
    return {};
  }
  return withoutEmpty({
    sessionAffinity: 'CLIENT_IP',
    sessionAffinityTimeout: seconds === undefined ? undefined : `${seconds}s`,
  });
}
