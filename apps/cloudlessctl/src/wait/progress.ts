import { Writable } from 'node:stream';
import { createLogUpdate } from 'log-update';
import type { CliSession } from '../call/cli-session.js';
import { formatPicture, type PictureLine, type PictureView } from './picture.js';
import { ProgressThrottle, type ProgressLine } from './progress-throttle.js';

/** Interval at which a picture is drawn again, because it shows times in seconds. */
const REDRAW_MS = 1_000;
/** Height of a terminal that does not tell its size. */
const DEFAULT_ROWS = 24;

/** A state of the work. */
export interface ProgressState extends ProgressLine {
  /** Draws the state on a terminal. Lines that do not fit are cut. */
  draw(view: PictureView): readonly PictureLine[];
}

/**
 * Shows progress: on a terminal one picture that is redrawn in place, elsewhere few lines, see
 * {@link ProgressThrottle}. Call {@link end} when the work has ended.
 */
export class Progress {
  /** The first error of a write, which the next call of `showState` throws. */
  private writeError: unknown;
  private readonly redraw: ReturnType<typeof createLogUpdate> | undefined;
  private readonly throttle = new ProgressThrottle();
  private readonly startedAtMs: number;
  private timer: { cancel(): void } | undefined;

  constructor(private readonly session: CliSession) {
    this.startedAtMs = session.io.clock.now();
    const output = this.output;
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

  /** True on a terminal, where a state is drawn again each second. */
  get isRedrawn(): boolean {
    return this.redraw !== undefined;
  }

  /** Shows a state. */
  async showState(state: ProgressState): Promise<void> {
    this.timer?.cancel();
    if (this.writeError !== undefined) throw this.writeError;
    if (this.redraw === undefined) return this.printLine(state);
    this.drawPicture(state);
  }

  /** Ends redrawing. The last state stays on the terminal. */
  end(): void {
    this.timer?.cancel();
    this.redraw?.done();
  }

  private get output() {
    const { isStructured, io } = this.session;
    return isStructured ? io.stderr : io.stdout;
  }

  private drawPicture(state: ProgressState): void {
    const { io, style, nowMs } = this.session;
    const { columns } = this.output;
    const view: PictureView = {
      width: columns,
      height: io.terminal?.size.rows ?? DEFAULT_ROWS,
      nowMs,
      elapsedMs: io.clock.now() - this.startedAtMs,
      style,
      hasUnicode: isUnicodeLocale(io.env),
    };
    // The line below the picture holds the cursor.
    this.redraw?.(formatPicture(state.draw(view), columns, Math.max(1, view.height - 1)));
    if (state.isFinal) return;
    this.timer = io.clock.setTimer(REDRAW_MS, () => this.drawPicture(state));
  }

  private async printLine(state: ProgressState): Promise<void> {
    const { clock } = this.session.io;
    const decision = this.throttle.decide(state, clock.now());
    if (decision.kind === 'print') return this.session.printStatus(state.text);
    if (decision.kind === 'drop') return;
    this.timer = clock.setTimer(decision.inMs, () => {
      this.printLine(state).catch((reason: unknown) => (this.writeError ??= reason));
    });
  }
}

function isUnicodeLocale(env: Readonly<Record<string, string | undefined>>): boolean {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  return env['TERM'] !== 'linux' && /utf-?8/i.test(locale);
}
