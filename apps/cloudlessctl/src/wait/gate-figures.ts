import type { Workload } from '@cloudless/api';
import type { CliSession } from '../call/cli-session.js';

/**
 * Interval of the reads. The coordinator evaluates gates every 5 s, and a watch gets an event only
 * when the verdict changes, because figures are not stored.
 */
const READ_MS = 5_000;

/** Reads the figures of the gate of a rollout again, for a picture that is redrawn. */
export class GateFigures {
  private timer: { cancel(): void } | undefined;
  private followed: Workload | undefined;
  private readonly ended = new AbortController();

  constructor(private readonly session: CliSession) {}

  /**
   * Keeps the figures in this state of a workload up to date, until the next call. Does nothing
   * while the workload has no gate.
   */
  follow(workload: Workload | undefined): void {
    this.timer?.cancel();
    this.followed = workload;
    if (workload?.status?.rollout?.gate === undefined || this.ended.signal.aborted) return;
    this.timer = this.session.io.clock.setTimer(READ_MS, () => void this.read(workload));
  }

  /** Ends the reads. */
  end(): void {
    this.ended.abort();
    this.follow(undefined);
  }

  private async read(workload: Workload): Promise<void> {
    const { namespace, name } = workload;
    try {
      const newest = await this.session.client.getWorkload(
        { namespace, name },
        { ...this.session.getStreamOptions(this.ended.signal), timeoutMs: READ_MS },
      );
      replaceGate(workload, newest);
    } catch {
      // The watch reports that the connection is lost; until then the last figures stay.
    }
    if (this.followed === workload) this.follow(workload);
  }
}

/** Replaces the gate of a state unless the newest state is at another step, which the watch shows. */
function replaceGate(workload: Workload, newest: Workload): void {
  const shown = workload.status?.rollout;
  const { rollout } = newest.status ?? {};
  const isSame =
    newest.uid === workload.uid &&
    rollout?.version === shown?.version &&
    rollout?.step === shown?.step;
  if (isSame && shown !== undefined && rollout?.gate !== undefined) shown.gate = rollout.gate;
}
