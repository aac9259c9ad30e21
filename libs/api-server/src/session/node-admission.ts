import { clone, equals } from '@bufbuild/protobuf';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  HelloSchema,
  Taint_Effect,
  type Hello,
} from '@cloudless/api';
import { NodeRecordSchema, type NodeRecord } from '@cloudless/api/store';
import { CloudlessError, InvalidInputError } from '@cloudless/base';
import type { Stored } from '@cloudless/cluster-state';
import { retryOnConflict } from '../mutation/retry-on-conflict.js';
import { stampTaints } from '../node/node-update.js';
import type { ApiServerDeps } from '../ports.js';
import type { ForeignAgents } from './foreign-agents.js';

/** Oldest version of the session protocol that this coordinator supports. */
export const PROTOCOL_MIN = 1;
/** Newest version of the session protocol that this coordinator supports. */
export const PROTOCOL_MAX = 2;
/** First version of the session protocol in which one tunnel can carry several logs. */
export const LOG_CHANNEL_PROTOCOL = 2;

/**
 * Returns the newest protocol version that both sides support. Call {@link admitNode} first: it
 * rejects an agent that has no version in common with this coordinator.
 */
export function negotiateProtocol(hello: Pick<Hello, 'protocolMax'>): number {
  return Math.min(hello.protocolMax, PROTOCOL_MAX);
}

export type NodeAdmissionDeps = Pick<ApiServerDeps, 'state' | 'clock' | 'random'> & {
  readonly foreignAgents: ForeignAgents;
};

/**
 * Returns the error for an agent whose Hello was stored while the leadership or the process was
 * ending: no coordinator would end its session.
 */
export const createClosingError = (): CloudlessError =>
  new CloudlessError('unavailable', 'this coordinator takes no more agents; dial again');

/**
 * Checks that an agent may open a session and stores its Hello in the node record.
 * @throws kind `precondition` when the agent supports no common protocol version, belongs to
 *   another cluster, or runs on another machine than the enrolled one; `notFound` when the node is
 *   not enrolled; `invalid` when the Hello contains impossible amounts or taints; `unavailable`
 *   when store conflicts persist.
 */
export async function admitNode(deps: NodeAdmissionDeps, hello: Hello): Promise<void> {
  checkCompatible(deps, hello);
  checkAmounts(hello);
  await retryOnConflict({ ...deps, subject: `node "${hello.nodeId}"` }, async () => {
    const node = deps.state.view().node(hello.nodeId);
    if (node === undefined)
      throw new CloudlessError('NODE_NOT_FOUND', `node "${hello.nodeId}" is not enrolled`);
    if (node.value.instanceId !== hello.instanceId) {
      throw new CloudlessError(
        'WRONG_CLUSTER',
        `node "${hello.nodeId}" is enrolled by another machine; choose another name`,
      );
    }
    const storedHello = Object.assign(clone(HelloSchema, hello), {
      conditions: [],
      highestEpoch: 0n,
      unreachableEpoch: 0n,
      unreachableAddress: '',
    });
    if (node.value.hello === undefined || !equals(HelloSchema, node.value.hello, storedHello))
      await saveHello(deps, node, storedHello);
  });
}

function checkCompatible({ state, foreignAgents }: NodeAdmissionDeps, hello: Hello): void {
  if (hello.protocolMin > PROTOCOL_MAX || hello.protocolMax < PROTOCOL_MIN) {
    throw new CloudlessError(
      'VERSION_SKEW',
      `the agent supports protocol ${hello.protocolMin} to ${hello.protocolMax}, ` +
        `this coordinator supports ${PROTOCOL_MIN} to ${PROTOCOL_MAX}; install matching versions`,
    );
  }
  if (hello.clusterId !== state.clusterId) {
    if (hello.clusterId !== '') foreignAgents.recordRefusal(hello.nodeId, hello.clusterId);
    throw new CloudlessError(
      'WRONG_CLUSTER',
      `node "${hello.nodeId}" belongs to cluster ${hello.clusterId || '(none)'}, this is cluster ${state.clusterId}`,
    );
  }
}

/** Most custom resources of a node. */
const MAX_CUSTOM_RESOURCES = 64;

/**
 * Rejects a Hello with impossible amounts or taints. The Hello is stored in the node record, where
 * every reader of the record would fail on them.
 * @throws kind `invalid` with all violations.
 */
function checkAmounts({ capacity, reserved, maxReplicas, taints }: Hello): void {
  const violations: { field: string; message: string }[] = [];
  for (const [name, amounts] of Object.entries({ capacity, reserved })) {
    if (amounts === undefined) continue;
    const { cpuMillis, memoryBytes, storageBytes, bandwidthBps, gpus, custom } = amounts;
    const amountsByField = {
      cpu_millis: cpuMillis,
      memory_bytes: memoryBytes,
      storage_bytes: storageBytes,
      bandwidth_bps: bandwidthBps,
      gpus,
      ...Object.fromEntries(
        Object.entries(custom).map(([key, amount]) => [`custom[${JSON.stringify(key)}]`, amount]),
      ),
    };
    if (Object.keys(custom).length > MAX_CUSTOM_RESOURCES)
      violations.push({
        field: `hello.${name}.custom`,
        message: `has more than ${MAX_CUSTOM_RESOURCES} names`,
      });
    for (const [field, value] of Object.entries(amountsByField)) {
      if (value >= 0 && value <= Number.MAX_SAFE_INTEGER) continue;
      violations.push({
        field: `hello.${name}.${field}`,
        message: `${value} is not a possible amount`,
      });
    }
  }
  if (maxReplicas < 0)
    violations.push({ field: 'hello.max_replicas', message: `${maxReplicas} is negative` });
  for (const [index, { key, effect }] of taints.entries()) {
    if (key === '')
      violations.push({ field: `hello.taints[${index}].key`, message: 'is required' });
    if (Taint_Effect[effect] === undefined) {
      violations.push({
        field: `hello.taints[${index}].effect`,
        message: `${String(effect)} is no effect`,
      });
    }
  }
  if (violations.length > 0) throw new InvalidInputError(violations);
}

async function saveHello(
  { state, clock }: NodeAdmissionDeps,
  node: Stored<NodeRecord>,
  hello: Hello,
): Promise<void> {
  const record = Object.assign(clone(NodeRecordSchema, node.value), { hello });
  stampTaints(node.value, record, clock.wallTime());
  const transaction = state
    .transaction()
    .require('node', record.id, node)
    .put('node', record.id, record);
  transaction.event({
    severity: Severity.INFO,
    category: Category.MEMBERSHIP,
    reason: node.value.hello === undefined ? 'NodeJoined' : 'NodeChanged',
    message: `node ${record.id} has ${hello.capacity?.cpuMillis ?? 0} m CPU, zone ${hello.zone || '(none)'}, capabilities ${hello.capabilities.join(', ')}`,
    nodeId: record.id,
  });
  await state.commitObserved(transaction);
}
