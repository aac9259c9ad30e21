import type { JsonValue } from '@bufbuild/protobuf';
import type { Settings } from '../config/settings.js';
import type { CliIo } from '../io/io.js';
import type { StreamFormatter } from '../output/format-value.js';
import type { Style } from '../output/style.js';

/**
 * The settings and output of one run of cloudlessctl. Commands that do not call a coordinator use
 * this class alone, so that they start without the clients and the schema of the API.
 */
export class LocalSession {
  private stream: StreamFormatter | undefined;

  constructor(
    readonly io: CliIo,
    readonly settings: Settings,
    readonly style: Style,
  ) {}

  /** True when results are printed for programs: in every format but the tables. */
  get isStructured(): boolean {
    return this.settings.output !== 'table' && this.settings.output !== 'wide';
  }

  /** True when a stream prints its items whole: `-o json` and `-o yaml`. */
  get printsEnvelopes(): boolean {
    return this.settings.output === 'json' || this.settings.output === 'yaml';
  }

  /** Current wall-clock time in milliseconds since the epoch, for the ages in tables. */
  get nowMs(): number {
    return this.io.clock.wallTime();
  }

  /** Writes to standard output. */
  print(data: string | Uint8Array): Promise<void> {
    return this.io.stdout.write(data);
  }

  /** Writes a line and a line feed to standard error. */
  printNotice(line: string): Promise<void> {
    return this.io.stderr.write(`${line}\n`);
  }

  /**
   * Prints a status line: to standard error when the output is JSON or YAML, else to standard
   * output.
   */
  printStatus(line: string): Promise<void> {
    return this.isStructured ? this.printNotice(line) : this.print(`${line}\n`);
  }

  /**
   * Prints a value in the format of `--output`.
   * @throws {@link CliFailure} with exit code 2 when the value has no name for `-o name`.
   */
  async printValue(value: JsonValue): Promise<void> {
    const { settings, style } = this;
    if (settings.output === 'json') return this.print(`${JSON.stringify(value, undefined, 2)}\n`);
    const { formatValue } = await import('../output/format-value.js');
    await this.print(formatValue(value, settings, style));
  }

  /** Prints one value of a stream: a line of JSON, a YAML document, or as {@link printValue}. */
  async printItem(value: JsonValue): Promise<void> {
    await this.printItems([value]);
  }

  /** Prints several values of a stream with one write. */
  async printItems(values: readonly JsonValue[]): Promise<void> {
    if (this.settings.output === 'json')
      return this.print(values.map((value) => `${JSON.stringify(value)}\n`).join(''));
    const { StreamFormatter } = await import('../output/format-value.js');
    this.stream ??= new StreamFormatter(this.settings, this.style);
    await this.print(this.stream.format(values));
  }
}
