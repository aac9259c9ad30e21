import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import type { Clock, Log, Meter, Random, WorkQueue, WorkResult } from '@cloudless/base';
import {
  listFileRefs,
  putSpecUpdate,
  type ClusterState,
  type ClusterView,
  type RecordChange,
} from '@cloudless/cluster-state';
import { commitOrReconcileAgain } from '../common/commit.js';
import { createReconcileQueue } from '../common/reconcile-queue.js';
import { describeRotation, findRotations, type Rotation } from './find-rotations.js';

export interface FileRotationDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly meter?: Meter;
}

/** Reason of the event about a rotation that cannot be rolled out. */
const BLOCKED = 'RotationBlocked';

/**
 * Rolls new versions of secrets and configs out: makes a new version of each workload whose newest
 * version keeps an older version of a secret or config with the reload mode RESTART. The rollout is
 * that of any other new version. Level-triggered: several new versions may make one rollout.
 */
export class FileRotationReconciler {
  private readonly queue: WorkQueue<string>;
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: FileRotationDeps) {
    this.queue = createReconcileQueue(deps, {
      loop: 'file_rotation',
      keyField: 'workloadId',
      failure: 'rotation failed',
      handle: (uid) => this.reconcile(uid),
    });
    this.wakeAll();
    this.unsubscribe = deps.state.subscribe((changes) => this.wakeFor(changes));
  }

  async close(): Promise<void> {
    this.unsubscribe();
    await this.queue.stop();
  }

  private wakeFor(changes: readonly RecordChange[]): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'config':
        case 'secret':
          if (change.after !== undefined && change.before?.version !== change.after.version)
            this.wakeUsers(change.after.namespace);
          break;
        case 'workload':
          if (change.after !== undefined && hasRefs(change.after)) this.queue.wake(change.id);
          break;
        // An operator may have accepted a restored state.
        case 'meta':
          this.wakeAll();
          break;
        default:
      }
    }
  }

  private wakeAll(): void {
    for (const { value } of this.deps.state.view().workloads())
      if (hasRefs(value)) this.queue.wake(value.uid);
  }

  private wakeUsers(namespace: string): void {
    for (const { value } of this.deps.state.view().workloads())
      if (value.namespace === namespace && hasRefs(value)) this.queue.wake(value.uid);
  }

  private async reconcile(uid: string): Promise<WorkResult> {
    const { state, clock, log } = this.deps;
    if (state.storeRolledBack !== undefined) return { kind: 'done' };
    const view = state.view();
    const workload = view.workload(uid);
    const spec = workload?.value.spec;
    if (workload === undefined || spec === undefined) return { kind: 'done' };
    if (workload.value.deletionRequestedAt !== undefined) return { kind: 'done' };
    const rotations = findRotations(view, workload.value);
    if (rotations.length === 0) return { kind: 'done' };
    const blocked = rotations.filter(({ missingKeys }) => missingKeys.length > 0);
    if (blocked.length > 0) return this.reportBlocked(view, workload.value, blocked);
    const transaction = state.transaction();
    const record = putSpecUpdate(transaction, view, workload, {
      ...{ spec, requestId: '', nowMs: clock.wallTime(), forceVersion: true },
      cause: rotations.map(({ noun, name, to }) => `${noun} ${name} version ${to}`).join(', '),
    });
    const { namespace, name, version, generation } = record;
    const hasSecret = rotations.some(({ noun }) => noun === 'secret');
    transaction.event({
      ...{ severity: Severity.INFO, category: Category.ROLLOUT, namespace, workload: name },
      reason: hasSecret ? 'SecretRotated' : 'ConfigRotated',
      message: `workload ${namespace}/${name} is now at version ${version} (generation ${generation}): ${rotations.map(describeRotation).join(', ')}`,
    });
    const result = await commitOrReconcileAgain(state, transaction);
    log.info('rotation rolled out', { workloadId: uid, version });
    return result;
  }

  /**
   * Reports a version without a key that the workload needs, once: replicas with this version could
   * not start.
   */
  private async reportBlocked(
    view: ClusterView,
    { namespace, name }: WorkloadRecord,
    blocked: readonly Rotation[],
  ): Promise<WorkResult> {
    const texts = blocked.map(
      (rotation) =>
        `version ${rotation.to} of ${rotation.noun} ${rotation.name} has no key ${rotation.missingKeys.join(', ')}`,
    );
    const message = `workload ${namespace}/${name} stays at its version: ${texts.join('; ')}`;
    const last = view.lastEvent({ kind: 'workload', namespace, name }, [BLOCKED]);
    if (last?.message === message) return { kind: 'done' };
    const transaction = this.deps.state.transaction().event({
      ...{ severity: Severity.WARNING, category: Category.ROLLOUT, namespace, workload: name },
      ...{ reason: BLOCKED, message },
    });
    return commitOrReconcileAgain(this.deps.state, transaction);
  }
}

function hasRefs({ spec }: WorkloadRecord): boolean {
  return spec !== undefined && listFileRefs(spec).length > 0;
}
