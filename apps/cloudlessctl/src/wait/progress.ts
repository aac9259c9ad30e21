import { Writable } from 'node:stream';
import { createLogUpdate } from 'log-update';
import type { Session } from '../session.js';
import { oneLine } from '../output/table.js';

/** Shows how far something is: redrawn on a terminal, elsewhere a line whenever there is news. */
export class Progress {
  private last = '';
  private failure: unknown;
  private readonly redraw: ReturnType<typeof createLogUpdate> | undefined;

  constructor(private readonly session: Session) {
    const output = session.structured ? session.io.stderr : session.io.stdout;
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
    // The cursor stays visible: hiding it would need handlers on the process to bring it back.
    this.redraw = createLogUpdate(Object.assign(stream, { isTTY: true, columns: output.columns }), {
      showCursor: true,
    });
  }

  /** Whether it is redrawn in place. */
  get redraws(): boolean {
    return this.redraw !== undefined;
  }

  /**
   * @param details - Lines below the headline, for terminals only.
   * @param isNews - Whether the headline is worth a line of its own, where nothing is redrawn.
   */
  async show(
    headline: string,
    details: readonly string[] = [],
    isNews = headline !== this.last,
  ): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    if (this.redraw !== undefined) {
      this.redraw(
        [headline, ...details.map((line) => `  ${oneLine(line)}`)]
          .map((line) => line.trimEnd())
          .join('\n'),
      );
    } else if (isNews) {
      await this.session.tell(headline);
    }
    this.last = headline;
  }

  /** Leaves the last state standing. */
  done(): void {
    this.redraw?.done();
  }
}
