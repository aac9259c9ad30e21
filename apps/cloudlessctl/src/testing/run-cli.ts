import { create } from '@bufbuild/protobuf';
import type { DescMessage, Message, MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { createRouterTransport } from '@connectrpc/connect';
import type { ServiceImpl, Transport } from '@connectrpc/connect';
import type { Clock } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  AdminService,
  AgentService,
  ConfigsService,
  CoordinatorService,
  IdentityService,
  NetworkService,
  PolicyService,
  SecretsService,
  UserService,
  NodeSchema,
  NodeStatusSchema,
  NodeStatus_Phase,
  ReplicaStatus_Phase,
  WorkloadSchema,
  WorkloadStatusSchema,
  WorkloadStatus_Phase,
} from '@cloudless/api';
import type { Node, Workload } from '@cloudless/api';
import { run } from '../cli.js';
import { BrokenPipeError } from '../io/io.js';
import type { CliIo, CliInput, CliOutput, ServerAccess, Terminal } from '../io/io.js';
import { MemoryFiles } from './memory-files.js';

/** The methods that a fake coordinator implements; other methods fail with UNIMPLEMENTED. */
export type FakeCoordinator = Partial<ServiceImpl<typeof CoordinatorService>>;

/** Environment of a run. */
export interface CliOptions {
  readonly coordinator?: FakeCoordinator;
  /** Methods of the fake agent service. */
  readonly agents?: Partial<ServiceImpl<typeof AgentService>>;
  /** Methods of the fake admin service. */
  readonly admin?: Partial<ServiceImpl<typeof AdminService>>;
  /** Methods of the fake identity service. */
  readonly identities?: Partial<ServiceImpl<typeof IdentityService>>;
  /** Methods of the fake network service. */
  readonly network?: Partial<ServiceImpl<typeof NetworkService>>;
  /** Methods of the fake policy service. */
  readonly policies?: Partial<ServiceImpl<typeof PolicyService>>;
  /** Methods of the fake service for secrets. */
  readonly secrets?: Partial<ServiceImpl<typeof SecretsService>>;
  /** Methods of the fake service for configs. */
  readonly configs?: Partial<ServiceImpl<typeof ConfigsService>>;
  /** Methods of the fake user service. */
  readonly users?: Partial<ServiceImpl<typeof UserService>>;
  /** Transport to use instead of the fake services. */
  readonly transport?: Transport;
  /** Content of each existing file by path. */
  readonly files?: Record<string, string>;
  /** Mode of files that others than the owner can read, such as 0o644. Default: 0600. */
  readonly modes?: Readonly<Record<string, number>>;
  /** Environment variables in addition to `HOME=/home/me`. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Default: empty input of the kind `other`. `failure`: error that reading throws after the text.
   */
  readonly stdin?: {
    readonly kind: CliInput['kind'];
    readonly text: string;
    readonly failure?: Error;
    /** True: the input does not end after the text. */
    readonly isOpen?: boolean;
  };
  /** Opens connections instead of the fake services. */
  readonly connect?: CliIo['connect'];
  /** Default: no server has TLS. */
  readonly detectTls?: CliIo['detectTls'];
  /** True when standard output and standard error are a terminal. Default: false. */
  readonly isTTY?: boolean;
  /** Width of standard output and standard error in characters. Default: 200. */
  readonly columns?: number;
  /** Minutes that local time is ahead of UTC. Default: 0. */
  readonly utcOffset?: number;
  /** Default: a clock that stands still at {@link NOW_MS}. */
  readonly clock?: Clock;
  /** Aborted for Ctrl-C. */
  readonly signal?: AbortSignal;
  readonly terminal?: Terminal;
  readonly listen?: CliIo['listen'];
  /** The reader closes the output pipe after this number of writes. Default: never. */
  readonly brokenAfter?: number;
  /** Called for each write to standard output. */
  onStdout?(text: string): void;
}

/** Result of a run. */
export interface CliResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  /** Content of all files by path, after the run. */
  readonly files: Readonly<Record<string, string>>;
  /** How the run has authenticated each connection with https, in order. */
  readonly accesses: readonly ServerAccess[];
  /** Addresses that the run has opened a connection for, in order. */
  readonly servers: readonly string[];
}

/** The fields of a message that differ from the defaults, and the fields of its status. */
type Fields<Desc extends DescMessage, Status extends DescMessage> = Plain<Desc, 'status'> & {
  readonly status?: Plain<Status>;
};
/** The optional fields of a message, except the fields `Without`. */
type Plain<Desc extends DescMessage, Without extends string = never> = Omit<
  Exclude<MessageInitShape<Desc>, Message>,
  '$typeName' | Without
>;

/** A text of the form of a user's token. */
export const USER_TOKEN = `clu1.k3v9x0aq71bd.${'A'.repeat(43)}.${'ab'.repeat(32)}`;

/** Start time of every test clock: 2026-01-01T00:00:00Z. */
export const NOW_MS = Date.UTC(2026, 0, 1);

/**
 * Runs a command line against a fake coordinator in the same process, without files, network or
 * real time.
 */
export async function runCli(
  argv: readonly string[],
  options: CliOptions = {},
): Promise<CliResult> {
  const output = { stdout: '', stderr: '' };
  const files = { ...options.files };
  const servers: string[] = [];
  const accesses: ServerAccess[] = [];
  const transport =
    options.transport ??
    createRouterTransport(({ service }) => {
      service(CoordinatorService, options.coordinator ?? {});
      service(AgentService, options.agents ?? {});
      service(AdminService, options.admin ?? {});
      service(IdentityService, options.identities ?? {});
      service(NetworkService, options.network ?? {});
      service(PolicyService, options.policies ?? {});
      service(SecretsService, options.secrets ?? {});
      service(ConfigsService, options.configs ?? {});
      service(UserService, options.users ?? {});
    });
  let writes = 0;
  const createOutput = (name: 'stdout' | 'stderr'): CliOutput => ({
    isTTY: options.isTTY ?? false,
    columns: options.columns ?? 200,
    write: async (data) => {
      writes += 1;
      if (name === 'stdout' && options.brokenAfter !== undefined && writes > options.brokenAfter)
        throw new BrokenPipeError();
      const text = typeof data === 'string' ? data : new TextDecoder().decode(data);
      output[name] += text;
      if (name === 'stdout') options.onStdout?.(text);
    },
  });
  const io: CliIo = {
    stdout: createOutput('stdout'),
    stderr: createOutput('stderr'),
    stdin: {
      kind: options.stdin?.kind ?? 'other',
      readAll: async (maxBytes) => {
        const bytes = new TextEncoder().encode(options.stdin?.text ?? '');
        return bytes.length > maxBytes ? undefined : bytes;
      },
      readChunks: async function* () {
        yield new TextEncoder().encode(options.stdin?.text ?? '');
        if (options.stdin?.failure !== undefined) throw options.stdin.failure;
        if (options.stdin?.isOpen === true) await new Promise(() => undefined);
      },
    },
    env: { HOME: '/home/me', ...options.env },
    files: new MemoryFiles(files, options.modes),
    hostName: 'laptop',
    clock: options.clock ?? new ManualClock(NOW_MS),
    getUtcOffset: () => options.utcOffset ?? 0,
    signal: options.signal ?? new AbortController().signal,
    connect: (server, access) => {
      servers.push(server);
      if (options.connect !== undefined) return options.connect(server, access);
      if (access !== undefined) accesses.push(access);
      return { transport: transport, close: () => undefined };
    },
    detectTls: options.detectTls ?? (async () => false),
    terminal: options.terminal,
    listen: options.listen ?? (() => Promise.reject(new Error('this test takes no connections'))),
  };
  const exitCode = await run(argv, io);
  return { exitCode, ...output, files, servers, accesses };
}

/** Creates a running workload: `default/web`, two ready replicas, an hour old. */
export function aWorkload(
  fields: Fields<typeof WorkloadSchema, typeof WorkloadStatusSchema> = {},
): Workload {
  return create(WorkloadSchema, {
    namespace: 'default',
    name: 'web',
    uid: '00000000000000aa',
    generation: 3n,
    createdAt: timestampFromMs(NOW_MS - 3_600_000),
    spec: { image: 'nginx:alpine', replicas: 2 },
    ...fields,
    status: create(WorkloadStatusSchema, {
      phase: WorkloadStatus_Phase.RUNNING,
      observedGeneration: 3n,
      version: 1,
      desiredReplicas: 2,
      totalReplicas: 2,
      readyReplicas: 2,
      updatedReplicas: 2,
      replicas: [0, 1].map((slot) => ({
        id: `00000000000000aa-${slot + 1}`,
        slot,
        version: 1,
        phase: ReplicaStatus_Phase.RUNNING,
        ready: true,
        nodeId: `node${slot + 1}`,
        zone: 'a',
        createdAt: timestampFromMs(NOW_MS - 3_600_000),
      })),
      ...fields.status,
    }),
  });
}

/** Creates a ready node: `web1` in zone `a`, with 4 cores and 8 GiB, three days old. */
export function aNode(fields: Fields<typeof NodeSchema, typeof NodeStatusSchema> = {}): Node {
  return create(NodeSchema, {
    id: 'web1',
    region: 'eu',
    zone: 'a',
    createdAt: timestampFromMs(NOW_MS - 86_400_000 * 3),
    ...fields,
    status: create(NodeStatusSchema, {
      phase: NodeStatus_Phase.READY,
      capacity: { cpuMillis: 4000, memoryBytes: 8n << 30n },
      reserved: { cpuMillis: 500, memoryBytes: 1n << 30n },
      allocated: { cpuMillis: 250, memoryBytes: 128n << 20n },
      replicaCount: 2,
      maxReplicas: 110,
      reliability: 1,
      ...fields.status,
    }),
  });
}
