import { durationFromMs } from '@bufbuild/protobuf/wkt';
import type { CoordinatorClient } from '@cloudless/api';
import type { WorkloadRecord } from '@cloudless/api/store';
import { AMPLE_DEADLINE_MS, requiredUserAction } from '../checks/rollout-progress.js';
import type { DurableRecords } from '../parts/durable-records.js';
import type { SimUser } from '../parts/sim-user.js';

type OperatorCall = (client: CoordinatorClient, requestId: string) => Promise<unknown>;

/**
 * The operator of a simulated cluster: performs the actions without which rollouts do not proceed,
 * according to their status. The methods return at once; {@link isBusy} is true until the outcomes
 * of their calls are known.
 */
export class SimOperator {
  private callsInProgress = 0;
  /** Workloads whose rollouts got more time. */
  private readonly givenTime = new Set<string>();

  /** @param user - Returns the user who makes the calls. */
  constructor(
    private readonly records: DurableRecords,
    private readonly user: () => SimUser | undefined,
  ) {}

  get isBusy(): boolean {
    return this.callsInProgress > 0;
  }

  /** Performs the action that each stopped rollout needs. */
  resolveStoppedRollouts(): void {
    for (const { value } of this.records.workloads()) this.resolveStoppedRollout(value);
  }

  uncordon(nodeId: string): void {
    this.call('uncordon', nodeId, (client) => client.uncordonNode({ nodeId }));
  }

  /** Removes a destroyed machine. Retries while the node still counts as connected. */
  removeNode(nodeId: string): void {
    const isFinal = (code: number): boolean => code !== FAILED_PRECONDITION;
    this.call('remove', nodeId, (client) => client.removeNode({ nodeId, force: true }), isFinal);
  }

  private resolveStoppedRollout(workload: WorkloadRecord): void {
    const { uid, name, deletionRequestedAt } = workload;
    const control = this.records.control(uid)?.value;
    if (control === undefined || deletionRequestedAt !== undefined) return;
    switch (requiredUserAction(control, workload)) {
      case 'resume':
        return this.call('resume', name, (client, requestId) =>
          client.resumeRollout({ name, requestId }),
        );
      case 'promote':
        return this.call('promote', name, (client, requestId) =>
          client.promoteRollout({ name, requestId }),
        );
      case 'giveTime':
        return this.giveTime(name);
      case 'raiseLimits':
        return this.updateRollout(name, { maxSurge: 1 });
      case undefined:
        return undefined;
    }
  }

  /**
   * Gives the rollout more time. A second attempt also allows a surge: a scale may have left limits
   * under which no replica can be replaced, and then an update is refused.
   */
  private giveTime(name: string): void {
    const progressDeadline = durationFromMs(AMPLE_DEADLINE_MS);
    const isRepeated = this.givenTime.has(name);
    this.givenTime.add(name);
    this.updateRollout(name, isRepeated ? { progressDeadline, maxSurge: 1 } : { progressDeadline });
  }

  private updateRollout(
    name: string,
    rollout: {
      readonly progressDeadline?: ReturnType<typeof durationFromMs>;
      readonly maxSurge?: number;
    },
  ): void {
    this.call('update', name, (client, requestId) =>
      client.updateWorkload({ name, spec: { rollout }, requestId }),
    );
  }

  private call(
    verb: string,
    name: string,
    call: OperatorCall,
    isFinal?: (code: number) => boolean,
  ): void {
    this.callsInProgress += 1;
    void this.user()
      ?.perform(
        `${verb} ${name}`,
        (client, requestId) => call(client, requestId).then(() => undefined),
        isFinal,
      )
      .finally(() => (this.callsInProgress -= 1));
  }
}

/** gRPC code of `FailedPrecondition`. */
const FAILED_PRECONDITION = 9;
