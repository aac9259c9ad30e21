import { CloudlessError, StoppedError, type StopSignal } from '@cloudless/base';
import type { ClusterState, ClusterView, RecordChange } from '@cloudless/cluster-state';
import { findRotation, planMasterKeyStep } from './master-key-steps.js';

/**
 * Waits for the end of a rotation of the master key, and counts what the rotation does meanwhile.
 * Close it.
 */
export class RotationWait {
  /** Number of versions that were encrypted again. */
  reEncrypted = 0;
  /** Number of master keys that were deleted. */
  deletedKeys = 0;
  private readonly ends: (() => void)[];
  private onChange: (changes: readonly RecordChange[]) => void = () => undefined;

  /** @param getProblem - Returns why the rotation cannot end; undefined when nothing keeps it. */
  constructor(
    private readonly state: ClusterState,
    private readonly getProblem: () => string | undefined,
  ) {
    this.ends = [
      state.subscribe((changes) => {
        for (const change of changes) this.count(change);
        this.onChange(changes);
      }),
    ];
  }

  /**
   * Resolves when no rotation is under way, and no key without a version is left.
   * @throws kind `precondition` with the problem; `StoppedError` when `signal` is aborted; reason
   *   `LEADERSHIP_LOST`; kind `unavailable` when the view ends.
   */
  untilEnd(signal: StopSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const check = (): void => {
        const problem = this.getProblem();
        if (problem !== undefined) reject(new CloudlessError('precondition', problem));
        else if (hasEnded(this.state.view())) resolve();
      };
      this.onChange = (changes) => {
        // The last step changes a key; a problem is reported by an event.
        if (changes.some(({ kind }) => kind === 'masterkey' || kind === 'event')) check();
      };
      const onAbort = (): void => reject(new StoppedError(signal.reason));
      if (signal.aborted) return onAbort();
      signal.addEventListener('abort', onAbort);
      this.ends.push(
        () => signal.removeEventListener('abort', onAbort),
        this.state.onLeadershipLost(reject),
        this.state.onEnd(reject),
      );
      check();
    });
  }

  close(): void {
    this.onChange = () => undefined;
    for (const end of this.ends.splice(0)) end();
  }

  private count(change: RecordChange): void {
    if (change.kind === 'masterkey' && change.after === undefined) this.deletedKeys += 1;
    if (change.kind !== 'secret' || change.before === undefined) return;
    const before = new Map(
      change.before.versions.map(({ version, masterKeyId }) => [version, masterKeyId]),
    );
    for (const { version, masterKeyId } of change.after?.versions ?? []) {
      const former = before.get(version);
      if (former !== undefined && former !== masterKeyId) this.reEncrypted += 1;
    }
  }
}

/** Returns true when no step is left. Looks at the secrets only after the rotation, not at each event. */
function hasEnded(view: ClusterView): boolean {
  return findRotation(view) === undefined && planMasterKeyStep(view).kind === 'none';
}
