import { Writable } from 'node:stream';
import { createLogUpdate } from 'log-update';
import type { CliSession } from '../call/cli-session.js';
import { toOneLine } from '../output/table.js';

/**
 * Shows progress: redrawn in place on a terminal, otherwise a line for each new headline. Call
 * {@link end} when the work has ended.
 */
export class Progress {
  private lastHeadline = '';
  /** The first error of a redraw, which the next call of `showState` throws. */
  private writeError: unknown;
  private readonly redraw: ReturnType<typeof createLogUpdate> | undefined;

  constructor(private readonly session: CliSession) {
    const output = session.isStructured ? session.io.stderr : session.io.stdout;
    if (!output.isTTY) return;
    const stream = new Writable({
      decodeStrings: false,
      write: (chunk: string, _encoding, done) => {
        output.write(chunk).then(
          () => done(),
          (reason: unknown) => {
            this.writeError ??= reason;
            done();
          },
        );
      },
    });
    // The cursor stays visible, because restoring it would need process exit handlers.
    this.redraw = createLogUpdate(Object.assign(stream, { isTTY: true, columns: output.columns }), {
      showCursor: true,
    });
  }

  /** True when the output is redrawn in place. */
  get isRedrawn(): boolean {
    return this.redraw !== undefined;
  }

  /**
   * Shows a state.
   * @param details - Lines below the headline, for terminals only.
   * @param hasChanged - True prints the headline when the output is not redrawn. Default: true when
   *   the headline differs from the previous headline.
   */
  async showState(
    headline: string,
    details: readonly string[] = [],
    hasChanged = headline !== this.lastHeadline,
  ): Promise<void> {
    if (this.writeError !== undefined) throw this.writeError;
    if (this.redraw !== undefined) {
      this.redraw(
        [headline, ...details.map((line) => `  ${toOneLine(line)}`)]
          .map((line) => line.trimEnd())
          .join('\n'),
      );
    } else if (hasChanged) {
      await this.session.printStatus(headline);
    }
    this.lastHeadline = headline;
  }

  /** Ends redrawing. The last state stays on the terminal. */
  end(): void {
    this.redraw?.done();
  }
}
