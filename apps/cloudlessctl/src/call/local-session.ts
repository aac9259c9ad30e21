import type { JsonValue } from '@bufbuild/protobuf';
import type { Settings } from '../config/settings.js';
import type { CliIo } from '../io/io.js';
import type { Style } from '../output/style.js';

/**
 * The settings and output of one run of cloudlessctl. Commands that do not call a coordinator use
 * this class alone, so that they start without the clients and the schema of the API.
 */
export class LocalSession {
  constructor(
    readonly io: CliIo,
    readonly settings: Settings,
    readonly style: Style,
  ) {}

  /** True when results are printed as JSON or YAML. */
  get isStructured(): boolean {
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

  /** Prints a value as JSON or YAML. */
  async printValue(value: JsonValue): Promise<void> {
    await this.print(
      this.settings.output === 'yaml'
        ? await formatYaml(value)
        : `${JSON.stringify(value, undefined, 2)}\n`,
    );
  }

  /** Prints one value of a stream: a line of JSON, or a YAML document. */
  async printItem(value: JsonValue): Promise<void> {
    await this.printItems([value]);
  }

  /** Prints several values of a stream with one write. */
  async printItems(values: readonly JsonValue[]): Promise<void> {
    const items =
      this.settings.output === 'yaml'
        ? (await Promise.all(values.map(formatYaml))).map((item) => `---\n${item}`)
        : values.map((value) => `${JSON.stringify(value)}\n`);
    await this.print(items.join(''));
  }
}

/** Formats a value as YAML. The YAML library is loaded on first use. */
async function formatYaml(value: JsonValue): Promise<string> {
  const { printYaml } = await import('../manifest/print-yaml.js');
  return printYaml(value);
}
