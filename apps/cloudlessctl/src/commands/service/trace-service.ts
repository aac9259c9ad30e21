import { ConnectError, Code } from '@connectrpc/connect';
import type { JsonValue } from '@bufbuild/protobuf';
import {
  Condition_Type,
  EndpointHealth_Status,
  NodeStatus_Phase,
  Port_Protocol,
  ReplicaStatus_Phase,
  type Node,
  type Service,
  type ServiceEndpoint,
  type ServicePort,
} from '@cloudless/api';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { Invocation } from '../../command-tree.js';
import { parseWorkloadName } from '../../names.js';
import { formatCount } from '../../output/human.js';
import { formatTable } from '../../output/table.js';
import { formatEndpointAddress } from '../../views/service-view.js';
import { requireOperand } from '../options.js';
import { fetchReplicas } from '../replica/fetch-replicas.js';
import { findService, listServiceEndpoints, parseServiceName } from './find-service.js';

/** One step from a caller to a service. */
export interface TraceStep {
  readonly step: string;
  /** `fails`: no connection gets further. `warns`: some connections do not. */
  readonly result: 'ok' | 'warns' | 'fails';
  readonly detail: string;
}

/** Facts from which the trace of one caller is computed. */
export interface TraceInput {
  /** The node of the caller. */
  readonly from: Node;
  readonly service: Service;
  readonly endpoints: readonly ServiceEndpoint[];
  /** Nodes of the endpoints, by id. */
  readonly nodes: ReadonlyMap<string, Node>;
  /** True when the cluster has TLS: only then do connections cross machines. */
  readonly hasTls: boolean;
}

/** Shows the steps from a node, or from the nodes of a workload, to a service. */
export async function traceService(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const fromText = requireOperand(invocation, 0, 'node or workload');
  const name = parseServiceName(
    requireOperand(invocation, 1, 'name of the service'),
    session.settings.namespace,
  );
  const service = await findService(session, name);
  const endpoints = await listServiceEndpoints(session, name);
  const from = await findCallers(session, fromText);
  const nodes = new Map<string, Node>();
  for (const nodeId of new Set(endpoints.map((endpoint) => endpoint.nodeId))) {
    const node = nodeId === '' ? undefined : await readNode(session, nodeId);
    if (node !== undefined) nodes.set(nodeId, node);
  }
  const hasTls = session.settings.server.startsWith('https:');
  const traces = from.map((node) => ({
    from: node.id,
    steps: traceSteps({ from: node, service, endpoints, nodes, hasTls }),
  }));
  if (session.isStructured) {
    const json: JsonValue = traces.map((trace) => ({
      from: trace.from,
      steps: trace.steps.map((step) => ({ ...step })),
    }));
    await session.printValue({ traces: json });
  } else {
    const paints = {
      ok: session.style.green,
      warns: session.style.yellow,
      fails: session.style.red,
    };
    for (const { from: nodeId, steps } of traces) {
      const rows = steps.map(({ step, result, detail }) => [
        nodeId,
        step,
        { text: result, paint: paints[result] },
        detail,
      ]);
      const columns = ['FROM', 'STEP', 'RESULT', { header: 'DETAIL', fit: 'wrap' as const }];
      await session.print(formatTable(columns, rows, session.style));
    }
  }
  if (traces.some(({ steps }) => steps.some(({ result }) => result === 'fails')))
    throw new CliFailure(
      ExitCode.error,
      `a connection to ${name.namespace}/${name.name} would fail; see the steps with "fails"`,
    );
}

/**
 * Computes the steps of a connection: the node of the caller, the name, the address, the endpoints,
 * and the way to the nearest of them. A node without a network proxy ends the trace, because nothing
 * answers there at the name and the address.
 */
export function traceSteps({
  from,
  service,
  endpoints,
  nodes,
  hasTls,
}: TraceInput): readonly TraceStep[] {
  const { spec, status } = service;
  const caller = [callerStep(from), ...proxySteps(from)];
  if (!mayHaveProxy(from)) return caller;
  const steps: TraceStep[] = [...caller, nameStep(service)];
  if (spec?.externalName) return steps;
  if (spec?.headless !== true) steps.push(addressStep(from, service));
  for (const condition of status?.conditions ?? []) {
    if (!condition.holds)
      steps.push({ step: 'condition', result: 'warns', detail: condition.message });
  }
  const usable = endpoints.filter(isUsable);
  steps.push(endpointsStep(endpoints, usable));
  if (usable.length > 0) steps.push(pathStep(from, usable, nodes, hasTls));
  return steps;
}

function isUsable({ health, weight }: ServiceEndpoint): boolean {
  const status = health?.status ?? EndpointHealth_Status.UNKNOWN;
  return (
    weight !== 0 &&
    status !== EndpointHealth_Status.UNHEALTHY &&
    status !== EndpointHealth_Status.DRAINING
  );
}

function isReady({ status }: Node): boolean {
  return status?.phase === NodeStatus_Phase.READY;
}

function callerStep(node: Node): TraceStep {
  if (isReady(node)) {
    const place = [node.zone, node.region].filter((part) => part !== '').join(', ');
    return { step: 'caller', result: 'ok', detail: `node ${node.id}${place && ` in ${place}`}` };
  }
  return {
    step: 'caller',
    result: 'warns',
    detail: `node ${node.id} is not ready: its proxy uses the last state that it knows`,
  };
}

/** Returns false when a node is known to have no network proxy. */
function mayHaveProxy({ status }: Node): boolean {
  return status?.networkProxy ?? true;
}

/**
 * A node can be without a network proxy, which is all of the trace then. A network proxy reports what
 * it cannot do, such as to listen at an address.
 */
function proxySteps(node: Node): readonly TraceStep[] {
  if (!mayHaveProxy(node))
    return [
      {
        step: 'proxy',
        result: 'fails',
        detail: `node ${node.id} runs without a network proxy: names and addresses of services do not work there; start its agent with --network on or auto`,
      },
    ];
  const problem = findProxyProblem(node);
  if (problem === undefined) return [];
  const result = problem.startsWith(NO_ANSWER) ? 'fails' : 'warns';
  return [{ step: 'proxy', result, detail: problem }];
}

/** Start of the condition text that agents write while their network proxy serves nothing. */
const NO_ANSWER = 'the network proxy does not answer';
/** Problem of a network proxy that serves no virtual address, as proxies write it. */
const NO_ADDRESSES = /virtual addresses of [^:;]* are not served/;

/** The virtual address on the node of the caller, whose network proxy may not serve it. */
function addressStep(from: Node, { spec, status }: Service): TraceStep {
  const step = 'address';
  const clusterIp = status?.clusterIp ?? '';
  if (clusterIp === '')
    return { step, result: 'fails', detail: 'the service has no virtual address' };
  const ports = spec?.ports ?? [];
  const detail = `${clusterIp}, ports ${ports.map(({ port }) => String(port)).join(', ')}`;
  const problem = findProxyProblem(from) ?? '';
  const isServed = ({ port, protocol }: ServicePort): boolean => {
    const kind = protocol === Port_Protocol.UDP ? 'udp' : 'tcp';
    return !problem.includes(`cannot listen at ${kind} ${clusterIp}:${port}:`);
  };
  const unserved = ports.filter((port) => NO_ADDRESSES.test(problem) || !isServed(port));
  if (unserved.length === 0) return { step, result: 'ok', detail };
  const named = unserved.map(({ port }) => String(port)).join(', ');
  return {
    ...{ step, result: unserved.length === ports.length ? 'fails' : 'warns' },
    detail: `${detail}: the network proxy of node ${from.id} does not listen at ${named}; see the step "proxy"`,
  };
}

function findProxyProblem({ status }: Node): string | undefined {
  return status?.conditions.find(
    ({ type, status: holds }) => holds && type === Condition_Type.NETWORK_PROXY_DEGRADED,
  )?.reason;
}

function nameStep({ spec, status }: Service): TraceStep {
  const name = status?.dnsName ?? '';
  const target = spec?.externalName ? ` leads to ${spec.externalName}` : '';
  return { step: 'name', result: 'ok', detail: `${name}${target}` };
}

function endpointsStep(
  endpoints: readonly ServiceEndpoint[],
  usable: readonly ServiceEndpoint[],
): TraceStep {
  const step = 'endpoints';
  if (endpoints.length === 0) {
    return { step, result: 'fails', detail: 'none: the proxy refuses the connection at once' };
  }
  const left = endpoints.filter((endpoint) => !usable.includes(endpoint));
  const reasons = left
    .map(({ id, weight, health }) => `${id}: ${health?.reason || whyUnused(weight)}`)
    .slice(0, MAX_REASONS);
  const detail = [
    `${usable.length} of ${formatCount(endpoints.length, 'endpoint')} receive connections`,
    ...reasons,
    ...(left.length > MAX_REASONS ? [`and ${left.length - MAX_REASONS} more`] : []),
  ].join('; ');
  if (usable.length === 0) return { step, result: 'fails', detail };
  return { step, result: left.length === 0 ? 'ok' : 'warns', detail };
}

const MAX_REASONS = 5;

function whyUnused(weight: number | undefined): string {
  return weight === 0 ? 'has weight 0' : 'not healthy';
}

function pathStep(
  from: Node,
  usable: readonly ServiceEndpoint[],
  nodes: ReadonlyMap<string, Node>,
  hasTls: boolean,
): TraceStep {
  const nearest = [...usable].sort(
    (left, right) => distance(from, left) - distance(from, right) || (left.id < right.id ? -1 : 1),
  );
  const ready = nearest.filter(({ nodeId }) => {
    const node = nodes.get(nodeId);
    return nodeId === '' || (node !== undefined && isReady(node));
  });
  const reachable = ready.find(({ nodeId }) => {
    const node = nodes.get(nodeId);
    return nodeId === from.id || node === undefined || mayHaveProxy(node);
  });
  if (reachable === undefined) {
    const [left, problem] =
      ready.length === 0
        ? [usable, 'the nodes of the endpoints are not ready']
        : [
            ready,
            `the nodes of the endpoints run without a network proxy; start their agents with --network on or auto`,
          ];
    const nodeIds = [...new Set(left.map(({ nodeId }) => nodeId))].join(', ');
    return { step: 'path', result: 'fails', detail: `${problem}: ${nodeIds}` };
  }
  const address = formatEndpointAddress(reachable);
  const { nodeId } = reachable;
  if (nodeId === from.id)
    return { step: 'path', result: 'ok', detail: `${address} on the same node` };
  if (nodeId === '')
    return { step: 'path', result: 'ok', detail: `${address} outside the cluster, from this node` };
  const where = `${address} on node ${nodeId}`;
  const target = nodes.get(nodeId);
  const problem = target === undefined ? undefined : findProxyProblem(target);
  if (hasTls && problem !== undefined)
    return { step: 'path', result: 'warns', detail: `${where}, whose proxy reports: ${problem}` };
  if (hasTls)
    return { step: 'path', result: 'ok', detail: `${where}, by mutual TLS between machines` };
  return {
    step: 'path',
    result: 'warns',
    detail: `${where}: reached on the same machine only, as the cluster has no TLS`,
  };
}

function distance(from: Node, { nodeId, zone, region }: ServiceEndpoint): number {
  if (nodeId !== '' && nodeId === from.id) return 0;
  if (zone !== '' && zone === from.zone) return 1;
  return region !== '' && region === from.region ? 2 : 3;
}

/** Returns the node of the name, or the nodes on which replicas of the workload run. */
async function findCallers(session: CliSession, text: string): Promise<readonly Node[]> {
  const node = text.includes('/') ? undefined : await readNode(session, text);
  if (node !== undefined) return [node];
  const workload = parseWorkloadName(text.replace(/^workloads?\//, ''), session.settings.namespace);
  const placed = await fetchReplicas(session, {
    namespace: workload.namespace,
    workload: workload.name,
  }).catch((reason: unknown) => {
    if (reason instanceof ConnectError && NOT_A_NODE.has(reason.code)) return [];
    throw reason;
  });
  const running = placed.filter(({ replica }) => replica.phase === ReplicaStatus_Phase.RUNNING);
  const nodeIds = [...new Set(running.map(({ replica }) => replica.nodeId))].sort();
  const nodes: Node[] = [];
  for (const nodeId of nodeIds) {
    const each = await readNode(session, nodeId);
    if (each !== undefined) nodes.push(each);
  }
  if (nodes.length > 0) return nodes;
  throw new CliFailure(
    ExitCode.notFound,
    `${JSON.stringify(text)} is neither a node nor a workload with a running replica; see: cloudlessctl get nodes`,
  );
}

async function readNode(session: CliSession, nodeId: string): Promise<Node | undefined> {
  try {
    return await session.client.getNode({ nodeId }, session.getCallOptions());
  } catch (reason) {
    if (reason instanceof ConnectError && NOT_A_NODE.has(reason.code)) return undefined;
    throw reason;
  }
}

const NOT_A_NODE: ReadonlySet<Code> = new Set([Code.NotFound, Code.InvalidArgument]);
