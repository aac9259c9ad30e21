import { clone } from '@bufbuild/protobuf';
import {
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
  type ReplicaReport,
} from '@cloudless/api';
import { ControlRecordSchema, type ControlRecord, type ReplicaRecord } from '@cloudless/api/store';
import {
  copyReplica,
  getNextOrderRevision,
  toCanonicalVersion,
  waitsForNode,
  type ClusterView,
  type Stored,
  type Transaction,
} from '@cloudless/cluster-state';
import type { ApiServerDeps } from '../ports.js';
import { mergeReport } from './merge-report.js';

/**
 * Most replicas that one commit takes back. With a control record and a deleted replacement for
 * each, the commit stays below the 100 writes of a transaction.
 */
const MAX_TAKEN_BACK = 25;

/** A replica that was lost with its node, and the replacement that has no node. */
interface TakenBack {
  readonly lost: Stored<ReplicaRecord>;
  readonly replacement: Stored<ReplicaRecord>;
  readonly control: Stored<ControlRecord>;
  readonly report: ReplicaReport;
}

/** The replicas that one commit takes back. */
export interface TakenBackBatch {
  readonly taken: readonly TakenBack[];
  /** True when more replicas can be taken back, by a further commit. */
  readonly hasMore: boolean;
}

/** A batch without replicas. */
export const NONE_TAKEN_BACK: TakenBackBatch = { taken: [], hasMore: false };

/**
 * Finds ready replicas of a lost node whose agent is connected again, and whose replacements still
 * wait for a node. Replicas of mode EXCLUSIVE are left out, as their agent stops them.
 * @param reports - The inventory of the agent.
 */
export function findTakenBack(
  { state }: Pick<ApiServerDeps, 'state'>,
  nodeId: string,
  reports: Iterable<ReplicaReport>,
): TakenBackBatch {
  const view = state.view();
  if (view.node(nodeId)?.value.draining !== false) return NONE_TAKEN_BACK;
  let waiting: Map<string, Stored<ReplicaRecord>> | undefined;
  const taken: TakenBack[] = [];
  for (const report of reports) {
    const lost = view.replica(report.replicaId);
    if (lost?.value.nodeId !== nodeId || !isHealthyTombstone(state, lost.value, report)) continue;
    const { uid, slot, version } = lost.value;
    const workload = view.workload(uid)?.value;
    const control = view.control(uid);
    if (workload === undefined || control === undefined) continue;
    if (workload.deletionRequestedAt !== undefined) continue;
    waiting ??= mapWaitingBySlot(view);
    const replacement = waiting.get(`${uid}/${slot}`);
    if (replacement === undefined || !mayReplace(lost.value, replacement.value)) continue;
    const isSameTemplate =
      toCanonicalVersion(view, uid, version) ===
      toCanonicalVersion(view, uid, replacement.value.version);
    if (!isSameTemplate) continue;
    if (taken.length === MAX_TAKEN_BACK) return { taken, hasMore: true };
    waiting.delete(`${uid}/${slot}`);
    taken.push({ lost, replacement, control, report });
  }
  return { taken, hasMore: false };
}

/**
 * Adds to a commit that replicas of a lost node continue: the lost mark is cleared and the
 * replacement is deleted. The commit conflicts when a replacement has got a node in the meantime.
 * The caller requires the record of the node, which says that the node is lost.
 * @param taken - Replicas of {@link findTakenBack}, found in the current view.
 */
export function putTakenBack(
  { state, clock }: Pick<ApiServerDeps, 'state' | 'clock'>,
  transaction: Transaction,
  nodeId: string,
  taken: TakenBackBatch['taken'],
): void {
  if (taken.length === 0) return;
  const view = state.view();
  for (const { lost, replacement, control, report } of taken) {
    const { uid } = lost.value;
    const wanted = copyReplica(lost.value, {
      lost: false,
      desiredRunning: true,
      phase: Phase.ASSIGNED,
      stopReason: '',
      orderRevision: getNextOrderRevision(view, lost.value),
    });
    delete wanted.lostAt;
    // The start order replaces the stop order that the agent has not received.
    transaction
      .updateReplica(lost, mergeReport(wanted, report, clock.wallTime(), false))
      .deleteReplica(replacement)
      .require('control', uid, control)
      .put('control', uid, clone(ControlRecordSchema, control.value));
  }
  const ids = taken.map(({ lost }) => lost.value.id);
  transaction.event({
    severity: Severity.INFO,
    category: Category.MEMBERSHIP,
    reason: 'ReplicasTakenBack',
    message:
      `${ids.length} ${ids.length === 1 ? 'replica continues' : 'replicas continue'} on node ` +
      `${nodeId}, which has returned: no node fitted the replacement`,
    nodeId,
    replicaIds: ids,
    causedBy: view.lastEvent({ kind: 'node', nodeId }, ['ReplicasLost']),
  });
}

/** Returns true for a replica that was lost and runs ready, and whose agent has no stop order. */
function isHealthyTombstone(
  state: ApiServerDeps['state'],
  replica: ReplicaRecord,
  { phase, ready, orderRevision }: ReplicaReport,
): boolean {
  return (
    replica.lost &&
    replica.phase === Phase.FAILED &&
    replica.stopAfter === undefined &&
    phase === Phase.RUNNING &&
    ready &&
    // 0: the agent has not confirmed the start order, for example after a reboot of the machine.
    orderRevision > 0n &&
    orderRevision < state.toOrderRevision(replica.orderRevision)
  );
}

function mapWaitingBySlot(view: ClusterView): Map<string, Stored<ReplicaRecord>> {
  const waiting = new Map<string, Stored<ReplicaRecord>>();
  for (const stored of view.unplaced())
    if (waitsForNode(stored.value)) waiting.set(`${stored.value.uid}/${stored.value.slot}`, stored);
  return waiting;
}

/**
 * Returns true for a waiting replica that was created after the loss, without a nomination, and of
 * a workload that is not EXCLUSIVE now.
 */
function mayReplace(
  lost: ReplicaRecord,
  { sequence, nominatedNodeId, onlyNodeId, stopAfter }: ReplicaRecord,
): boolean {
  return (
    sequence > lost.sequence &&
    stopAfter === undefined &&
    nominatedNodeId === '' &&
    (onlyNodeId === '' || onlyNodeId === lost.nodeId)
  );
}
