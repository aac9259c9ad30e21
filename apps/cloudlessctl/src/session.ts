import { createClient } from '@connectrpc/connect';
import type { CallOptions, Client, Transport } from '@connectrpc/connect';
import { toJson } from '@bufbuild/protobuf';
import type { DescMessage, JsonValue, MessageShape } from '@bufbuild/protobuf';
import {
  AdminService,
  AgentService,
  CoordinatorService,
  type AdminClient,
  type AgentClient,
} from '@cloudless/api';
import type { Settings } from './config/settings.js';
import type { CliIo, Connection } from './io.js';
import { printYaml } from './manifest/print-yaml.js';
import type { Style } from './output/style.js';

/** The public API as a client sees it. */
export type CoordinatorClient = Client<typeof CoordinatorService>;

/** A call that is not answered within this time has failed, unless `--timeout` says otherwise. */
const CALL_TIMEOUT_MS = 30_000;

/** One run of a command: where it talks to, and how it prints. */
export class Session {
  private connection: Connection | undefined;
  private openedAdmin: AdminClient | undefined;
  private openedAgents: AgentClient | undefined;
  private opened: CoordinatorClient | undefined;

  constructor(
    readonly io: CliIo,
    readonly settings: Settings,
    readonly style: Style,
  ) {}

  /** The coordinator; connects on the first use. */
  get client(): CoordinatorClient {
    return (this.opened ??= createClient(CoordinatorService, this.transport));
  }

  /** What operators may ask of it. */
  get admin(): AdminClient {
    return (this.openedAdmin ??= createClient(AdminService, this.transport));
  }

  /** What the coordinator asks of agents for its callers. */
  get agents(): AgentClient {
    return (this.openedAgents ??= createClient(AgentService, this.transport));
  }

  private get transport(): Transport {
    return (this.connection ??= this.io.connect(this.settings.server)).transport;
  }

  /** Options of a call that is answered once. */
  callOptions(timeoutMs = this.settings.timeoutMs ?? CALL_TIMEOUT_MS): CallOptions {
    return { ...this.streamOptions(), timeoutMs };
  }

  /** Options of a call that goes on, until `signal` at the latest. */
  streamOptions(signal: AbortSignal = this.io.signal): CallOptions {
    const { requestId } = this.settings;
    return { signal, ...(requestId === '' ? {} : { headers: { 'x-request-id': requestId } }) };
  }

  /**
   * The id for one request of a command that sends several: the coordinator keeps each id with its
   * body, so that they must differ.
   * @param part - Tells the requests apart; without one the command sends one request only.
   */
  requestId(part?: string): string {
    const { requestId } = this.settings;
    return requestId === '' || part === undefined ? requestId : `${requestId}/${part}`;
  }

  /** Whether results are for programs. */
  get structured(): boolean {
    return this.settings.output === 'json' || this.settings.output === 'yaml';
  }

  /** Milliseconds since the epoch, for ages. */
  get nowMs(): number {
    return this.io.clock.wallTime();
  }

  /** Writes results. */
  print(data: string | Uint8Array): Promise<void> {
    return this.io.stdout.write(data);
  }

  /** Writes a line that is not part of the result. */
  note(line: string): Promise<void> {
    return this.io.stderr.write(`${line}\n`);
  }

  /** Tells about what was done: part of the result for people, beside it for programs. */
  tell(line: string): Promise<void> {
    return this.structured ? this.note(line) : this.print(`${line}\n`);
  }

  /** Prints a value for programs. */
  printValue(value: JsonValue): Promise<void> {
    return this.print(
      this.settings.output === 'yaml'
        ? printYaml(value)
        : `${JSON.stringify(value, undefined, 2)}\n`,
    );
  }

  /** Prints one of many values for programs: a line of JSON, or a YAML document. */
  printItem(value: JsonValue): Promise<void> {
    return this.print(this.itemText(value));
  }

  /** Like {@link printItem} for several values, with one write. */
  printItems(values: readonly JsonValue[]): Promise<void> {
    return this.print(values.map((value) => this.itemText(value)).join(''));
  }

  private itemText(value: JsonValue): string {
    return this.settings.output === 'yaml'
      ? `---\n${printYaml(value)}`
      : `${JSON.stringify(value)}\n`;
  }

  close(): void {
    this.connection?.close();
  }
}

/** A message as JSON with zero values, as the coordinator itself prints it. */
export function messageJson<Desc extends DescMessage>(
  schema: Desc,
  message: MessageShape<Desc>,
): JsonValue {
  return toJson(schema, message, { alwaysEmitImplicit: true });
}
