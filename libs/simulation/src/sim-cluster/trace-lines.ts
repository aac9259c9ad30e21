import { timestampMs } from '@bufbuild/protobuf/wkt';
import {
  RolloutStatus_Phase as RolloutPhase,
  type AgentMessage,
  type CoordinatorMessage,
} from '@cloudless/api';
import type {
  ControlRecord,
  NodeRecord,
  ReplicaRecord,
  WorkloadRecord,
} from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import { findReplicaChanges } from '../checks/commit-changes.js';

/** A line of the trace without its time. */
export interface TraceLine {
  readonly source: string;
  readonly text: string;
}

/**
 * Describes a session message as a line of the trace; undefined for messages without a line.
 * @param direction - `up`: from the agent to the coordinator. Reports are always sent up.
 */
export function describeMessage(
  nodeId: string,
  direction: 'up' | 'down',
  { message }: AgentMessage | CoordinatorMessage,
): TraceLine | undefined {
  switch (message?.case) {
    case 'order': {
      const { order, replicaId, orderRevision, epoch } = message.value;
      const text = `order ${orderRevision}/${epoch} to ${order.case ?? '?'} ${replicaId} for ${nodeId}`;
      return { source: 'network', text };
    }
    case 'report': {
      const { replicaId, phase, ready, restarts, orderRevision } = message.value;
      const state = `phase ${phase}${ready ? ' ready' : ''} restarts ${restarts} order ${orderRevision}`;
      const verb = direction === 'up' ? 'reports' : 'receives';
      return { source: nodeId, text: `${verb} ${replicaId}: ${state}` };
    }
    case 'inventory': {
      const ids = message.value.replicas.map(({ replicaId, phase }) => `${replicaId}:${phase}`);
      return { source: nodeId, text: `inventory [${ids.join(' ')}]` };
    }
    case 'refused': {
      const { orderRevision, replicaId, reason } = message.value;
      return { source: nodeId, text: `refuses order ${orderRevision} for ${replicaId}: ${reason}` };
    }
    case 'welcome':
      return { source: 'network', text: `welcome for ${nodeId}` };
    default:
      return undefined;
  }
}

/** Describes a change of a record as a line of the trace; undefined for kinds without a line. */
export function describeChange({ kind, id, before, after }: RecordChange): string | undefined {
  if (kind === 'replica') {
    const [change] = findReplicaChanges([{ kind, id, before, after } as RecordChange]);
    const record = change?.after;
    return record === undefined
      ? `replica ${change?.before?.id} is removed`
      : describeReplica(record);
  }
  if (kind === 'workload') {
    const record = after as WorkloadRecord | undefined;
    if (record === undefined) return `workload ${(before as WorkloadRecord).name} is removed`;
    const { name, uid, generation, version, spec, deletionRequestedAt } = record;
    const text =
      deletionRequestedAt === undefined ? `${spec?.replicas} replicas` : 'is being deleted';
    return `workload ${name} (${uid}) generation ${generation} version ${version}: ${text}`;
  }
  if (kind === 'control') return describeControl(after as ControlRecord | undefined);
  if (kind === 'node') {
    const record = after as NodeRecord | undefined;
    if (record === undefined) return `node ${id} is removed`;
    const { deadline, force = false } = record.drain ?? {};
    const drain = `draining${force ? ' by force' : ''}${deadline === undefined ? '' : ` until ${timestampMs(deadline)}`}`;
    const marks = [
      record.lost ? 'lost' : '',
      record.cordoned ? 'cordoned' : '',
      record.draining ? drain : '',
    ];
    return `node ${id} ${marks.filter((mark) => mark !== '').join(' ') || 'is well'}`;
  }
  return undefined;
}

function describeControl(record: ControlRecord | undefined): string | undefined {
  if (record?.rollout === undefined) return undefined;
  const { uid, rolloutPhase, rolloutReason, activeVersion, rollout, pausedVersion } = record;
  const { version, strategy, stepsDone, failedNew, promoted, waitsForPromotion } = rollout;
  const marks = `${promoted ? ' promoted' : ''}${waitsForPromotion ? ' waits for a promotion' : ''}${pausedVersion === 0 ? '' : ` paused v${pausedVersion}`}`;
  const where = `${RolloutPhase[rolloutPhase]} v${version} active v${activeVersion} strategy ${strategy}`;
  return `rollout of ${uid} ${where} steps ${stepsDone} failed ${failedNew}${marks}: ${rolloutReason}`;
}

function describeReplica(record: ReplicaRecord): string {
  const {
    id,
    version,
    nodeId,
    phase,
    ready,
    desiredRunning,
    lost,
    restarts,
    orderRevision,
    containerId,
    slot,
  } = record;
  const marks = `${ready ? ' ready' : ''}${desiredRunning ? '' : ' unwanted'}${lost ? ' lost' : ''}`;
  const where = nodeId === '' ? 'nowhere' : nodeId;
  return `replica ${id} v${version} slot ${slot} ${where} phase ${phase}${marks} restarts ${restarts} order ${orderRevision} ${containerId.slice(0, 8)}`;
}
