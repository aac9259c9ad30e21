import { Writable } from 'node:stream';
import { createLogUpdate } from 'log-update';
import type { CliSession } from '../call/cli-session.js';
import { toOneLine } from '../output/table.js';

/** Shows progress: redrawn on a terminal, otherwise a line for each new headline. */
export class Progress {
  private last = '';
  private failure: unknown;
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
            this.failure ??= reason;
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
   * @param isNews - Whether to print the headline when the output is not redrawn. Default: the
   *   headline has changed.
   */
  async showState(
    headline: string,
    details: readonly string[] = [],
    isNews = headline !== this.last,
  ): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    if (this.redraw !== undefined) {
      this.redraw(
        [headline, ...details.map((line) => `  ${toOneLine(line)}`)]
          .map((line) => line.trimEnd())
          .join('\n'),
      );
    } else if (isNews) {
      await this.session.printStatus(headline);
    }
    this.last = headline;
  }

  /** Ends redrawing; the last state stays on the terminal. */
  end(): void {
    this.redraw?.done();
  }
}
