import type { GetMasterKeyInfoResponse } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import type { CliSession } from '../call/cli-session.js';
import { drawBar, drawResult, drawTitle } from './picture.js';
import { Progress } from './progress.js';

/**
 * Shows the progress of a rotation of the master key: a picture on a terminal, elsewhere few lines.
 * Shows nothing before the first state.
 */
export class RotationProgress {
  private progress: Progress | undefined;

  /** @param total - Number of versions that the rotation encrypts again. */
  constructor(
    private readonly session: CliSession,
    private total: number,
  ) {}

  /** Shows a new state; a state without a rotation is not shown. */
  async show({ rotating, remaining }: GetMasterKeyInfoResponse): Promise<void> {
    if (!rotating) return;
    const left = Number(remaining);
    // Secrets may be created between the first read and the rotation.
    this.total = Math.max(this.total, left);
    this.progress ??= new Progress(this.session);
    await this.showCount(this.progress, this.total - left, false);
  }

  /** Shows that the rotation has ended. */
  async finish(): Promise<void> {
    if (this.progress !== undefined) await this.showCount(this.progress, this.total, true);
  }

  /** Ends redrawing. The last state stays on the terminal. */
  end(): void {
    this.progress?.end();
  }

  private async showCount(progress: Progress, done: number, isFinal: boolean): Promise<void> {
    const { total } = this;
    const text = `${done} of ${formatCount(total, 'version')} encrypted again`;
    await progress.showState({
      text: `master key: ${text}`,
      fraction: total === 0 ? 0 : done / total,
      isFinal,
      draw: (view) =>
        isFinal
          ? [drawResult(`master key: ${text}`, view)]
          : [
              drawTitle('master key', 'is being rotated', view),
              drawBar(
                { title: 'done', count: done, scale: total, paint: view.style.green, text },
                view,
              ),
            ],
    });
  }
}
