import type { ContainerId, StopSignal } from '@cloudless/base';

/** A port that the workload listens on. */
export interface PortRequest {
  /** DNS label, unique in the container. */
  readonly name: string;
  /**
   * The number the user declared, 1 to 65535. A runtime with its own network per container listens
   * there.
   */
  readonly port: number;
  readonly protocol: 'tcp' | 'udp';
  /** Fixed port of the machine that leads here. Needs capability `ports.host`. */
  readonly hostPort?: number;
}

/** When an image is fetched: `ifNotPresent` by default. */
export type PullPolicy = 'ifNotPresent' | 'always' | 'never';

/** A directory or file that a container finds at `mountPath`. */
export interface VolumeRequest {
  /** DNS label, unique in the container. */
  readonly name: string;
  /** Absolute path inside the container. */
  readonly mountPath: string;
  readonly readOnly: boolean;
  readonly source:
    /**
     * Empty for the first container of its group, then as the one before left it; goes with the
     * last of the group.
     */
    | { readonly kind: 'emptyDir'; readonly memory?: MemoryRequest }
    /** What is there on the machine. Needs capability `volumes.hostpath`. */
    | { readonly kind: 'hostPath'; readonly path: string }
    /**
     * Kept on the machine under these names until somebody removes it; made when missing. Each part
     * is a DNS label.
     */
    | {
        readonly kind: 'named';
        readonly namespace: string;
        readonly workload: string;
        readonly name: string;
      };
}

/**
 * Files in memory instead of on disk; what is in them counts as memory of the container. Needs
 * capability `volumes.memory`.
 */
export interface MemoryRequest {
  /** Absent: half of the machine's memory. */
  readonly sizeBytes?: number;
}

/**
 * Profiles of seccomp and AppArmor: the runtime's own, none, or one that the machine has (a path,
 * or a name for AppArmor).
 */
export type SecurityProfile =
  | { readonly kind: 'runtimeDefault' }
  | { readonly kind: 'unconfined' }
  | { readonly kind: 'localhost'; readonly reference: string };

/**
 * Privileges of a container. What is absent is the runtime's least: see the README of the runtime.
 */
export interface SecurityRequest {
  readonly runAsNonRoot?: boolean;
  readonly runAsUser?: number;
  /**
   * A name in the image's own list of users, in place of `runAsUser`. Needs capability
   * `security.username`.
   */
  readonly userName?: string;
  /** Needs `runAsUser` or `userName`. */
  readonly runAsGroup?: number;
  /** Ids of groups beside those of the user. Needs capability `security.groups`. */
  readonly supplementalGroups?: readonly number[];
  /**
   * A further group, that empty directories and what is made in them belong to. Needs capability
   * `security.groups`.
   */
  readonly fsGroup?: number;
  readonly readOnlyRootFilesystem?: boolean;
  /** Without `CAP_`, in capitals, or `ALL`. Dropped first, then added. */
  readonly capabilitiesAdd?: readonly string[];
  readonly capabilitiesDrop?: readonly string[];
  readonly seccomp?: SecurityProfile;
  /** Needs capability `security.apparmor`. */
  readonly apparmor?: SecurityProfile;
  /** Needs capability `security.selinux`. */
  readonly selinux?: {
    readonly user: string;
    readonly role: string;
    readonly type: string;
    readonly level: string;
  };
  /** Needs capability `security.privileged`. */
  readonly privileged?: boolean;
  /** Default true. */
  readonly noNewPrivileges?: boolean;
  /** Needs capability `runtime-class.<name>`. */
  readonly runtimeClass?: string;
}

/** One line of a container's `/etc/hosts`. */
export interface ExtraHost {
  /** IPv4 or IPv6. */
  readonly ip: string;
  /** At least one; labels of letters, digits, `-` and `_`, separated by dots. */
  readonly hostnames: readonly string[];
}

/** The network that a container sees. */
export interface NetworkRequest {
  /** The machine's own. Needs capability `network.host`. */
  readonly hostNetwork?: boolean;
  readonly hostname?: string;
  /** IP addresses; absent: as the machine. */
  readonly dnsServers?: readonly string[];
  /** Further lines of the container's `/etc/hosts`, after localhost and its own name. */
  readonly extraHosts?: readonly ExtraHost[];
}

/** A device of the machine. Needs capability `device.<hostPath>`. */
export interface DeviceRequest {
  readonly hostPath: string;
  /** Absolute path inside the container. */
  readonly containerPath: string;
  /** Any of `r`, `w` and `m`, in this order. */
  readonly permissions: string;
}

/**
 * A limit of each process, as setrlimit(2) has it; -1: no limit. Needs capability
 * `container.ulimits`.
 */
export interface UlimitRequest {
  /** As `ulimit` and Docker name them: `nofile`, `core`… */
  readonly name: string;
  readonly soft: number;
  readonly hard: number;
}

/** What a start is busy with, for people who wait. */
export type StartProgress =
  | { readonly kind: 'pulling'; readonly image: string }
  | {
      readonly kind: 'pulled';
      readonly image: string;
      readonly tookMs: number;
      readonly sizeBytes?: number;
    }
  | {
      readonly kind: 'pullFailed';
      readonly image: string;
      readonly tookMs: number;
      readonly reason: string;
    };

/** What to run. Complete: nothing is looked up elsewhere. */
export interface ContainerRequest {
  /** 64 hex digits, made by the caller, new for each start. */
  readonly containerId: ContainerId;
  /**
   * Who owns it; kept by the runtime and given back by `list`, so that an agent finds its own
   * again.
   */
  readonly labels: Readonly<Record<string, string>>;
  /** Image reference; absent for a plain process. */
  readonly image?: string;
  /** Executable and its first arguments; empty means the image's own entry point. */
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /**
   * Absolute path; absent means the runtime's default (a fresh directory of the container's own for
   * processes).
   */
  readonly workingDir?: string;
  readonly ports: readonly PortRequest[];
  /**
   * Enforced limits; absent means none, of `pids` (processes and threads) the runtime's own. CPU in
   * millicores, memory in bytes.
   */
  readonly limits: {
    readonly cpuMillis?: number;
    readonly memoryBytes?: number;
    readonly pids?: number;
  };
  /**
   * Reserved resources: they decide how scarce CPU time is divided, and which container the kernel
   * ends when memory runs out. Runtimes without cgroups ignore them.
   */
  readonly requests?: { readonly cpuMillis?: number; readonly memoryBytes?: number };
  readonly imagePull?: PullPolicy;
  /**
   * Containers of one group, one after the other, share their empty directories: the replica's id.
   */
  readonly group?: string;
  readonly volumes?: readonly VolumeRequest[];
  readonly security?: SecurityRequest;
  readonly network?: NetworkRequest;
  /**
   * An init process reaps orphans as the first process of the container. Default true where the
   * runtime can; written out as true it needs capability `container.init`.
   */
  readonly init?: boolean;
  /**
   * Size of /dev/shm, empty at each start; absent: the runtime's own. Needs capability
   * `container.shm`.
   */
  readonly shmSizeBytes?: number;
  /**
   * Kernel parameters of its own namespaces, by their names: `net.ipv4.tcp_keepalive_time`. Each
   * needs a capability of its own, `sysctl.<name>`.
   */
  readonly sysctls?: Readonly<Record<string, string>>;
  readonly ulimits?: readonly UlimitRequest[];
  readonly devices?: readonly DeviceRequest[];
  /** Platform of the image, such as `linux/amd64`. Needs capability `platform.<platform>`. */
  readonly imagePlatform?: string;
  /**
   * Ends the container unless it is renewed; absent: it runs without end. Needs capability
   * `disconnect.exclusive`.
   */
  readonly lease?: ContainerLease;
}

/**
 * How long a container may run on without its caller: unless it is renewed within `leaseMs` it gets
 * SIGTERM, and SIGKILL `graceMs` later. The runtime itself sees to it, so it holds also when the
 * caller was killed or stands still.
 */
export interface ContainerLease {
  readonly leaseMs: number;
  readonly graceMs: number;
}

/** Where a declared port is reached. */
export interface ContainerEndpoint {
  readonly portName: string;
  readonly ip: string;
  readonly port: number;
}

/** `running`: its main process lives. `exited`: it ended; `exitCode` and `finishedAtMs` are set. */
export type ContainerPhase = 'running' | 'exited';

/**
 * What the runtime knows about one container. Times are wall-clock milliseconds since the epoch.
 */
export interface ContainerStatus {
  readonly containerId: ContainerId;
  readonly labels: Readonly<Record<string, string>>;
  readonly phase: ContainerPhase;
  /** Name of the one that has it, where several runtimes are one. */
  readonly runtime?: string;
  /** Id of the container in containerd or CRI-O, as `crictl` prints it; absent for processes. */
  readonly runtimeId?: string;
  /** Digest of the resolved image in its registry, or else the id of the image. */
  readonly imageDigest?: string;
  /** Process id of the main process while it runs. */
  readonly pid?: number;
  readonly startedAtMs: number;
  readonly finishedAtMs?: number;
  /**
   * 0 to 255; 128 + n when ended by signal n, as shells count; -1 when it ended while nobody could
   * see its code.
   */
  readonly exitCode?: number;
  /**
   * One phrase for people: `completed`, `exit code 3`, `killed by SIGKILL`, `out of memory`, `lost
   * with the machine`.
   */
  readonly reason?: string;
  /** It was ended by the runtime because its lease was not renewed. */
  readonly leaseEnded?: true;
  /**
   * Its processes have a cgroup of their own, and a network namespace of their own: what statistics
   * can be told apart.
   */
  readonly ownCgroup?: true;
  readonly ownNetwork?: true;
  /**
   * Address in a network of its own while it runs: what it declares no port for is reached there
   * too, from its machine.
   */
  readonly ip?: string;
  readonly endpoints: readonly ContainerEndpoint[];
}

/** Health of a runtime, from what the runtime already knows: reading it makes no call. */
export interface RuntimeHealth {
  /** For how many milliseconds the container runtime has answered no call; 0: it answers. */
  readonly containersSilentMs: number;
  /** Containers that were running when last listed, and whose main process no longer exists. */
  readonly withoutProcess: readonly ContainerId[];
}

/** Health of a runtime that answers. */
export const HEALTHY: RuntimeHealth = { containersSilentMs: 0, withoutProcess: [] };

/** A container began to run or ended. */
export interface ContainerEvent {
  readonly kind: 'started' | 'exited';
  readonly status: ContainerStatus;
}

export type LogStream = 'stdout' | 'stderr';

/** One line of output, without its line end. */
export interface LogLine {
  /** Counts from 1 in each container, over both streams, without gap. */
  readonly sequence: bigint;
  readonly stream: LogStream;
  /** When the runtime read it, wall-clock milliseconds since the epoch. */
  readonly timeMs: number;
  /**
   * Raw bytes: output need not be UTF-8. At most 16 KiB; a longer line is continued in the next
   * entry with `partial`.
   */
  readonly text: Uint8Array;
  /** The line goes on in the next entry of the same stream. */
  readonly partial: boolean;
}

/** Lines of one container that were read at the same time. */
export interface LogBatch {
  /** In order of their sequence number; empty only beside `skipped`. */
  readonly lines: readonly LogLine[];
  /** Lines that are missing before `lines`. */
  readonly skipped?: SkippedLines;
}

/** Lines that rotation removed before a reader came to them. */
export interface SkippedLines {
  readonly firstSequence: bigint;
  readonly lastSequence: bigint;
  /** Size of these lines in the log files, bytes; undefined when it is not known. */
  readonly bytes?: number;
}

/** Which lines. All conditions hold together. */
export interface LogRequest {
  /** Goes on with new lines until the container has ended and all is read. */
  readonly follow: boolean;
  /** Only the last this many of what is there now (before following); 0 means only new lines. */
  readonly tailLines?: number;
  /** Only lines with a time at or after this, milliseconds since the epoch. */
  readonly sinceMs?: number;
  /** Only lines with a greater sequence number: resumes where a reader stopped. */
  readonly afterSequence?: bigint;
  readonly streams?: readonly LogStream[];
}

/** A command to run beside the main process, with its environment and directory. */
export interface ExecRequest {
  readonly command: readonly string[];
  /** Ends it (the whole process group) after this many milliseconds with kind `deadline`. */
  readonly timeoutMs?: number;
  /** All of its input. */
  readonly stdin?: Uint8Array;
  /**
   * Its input as it comes, in place of `stdin`; taken only as fast as the command reads. When it
   * ends, so does the command's input. When the command ends, or cannot be started, the iteration
   * is left.
   */
  readonly input?: AsyncIterable<ExecInput>;
  /** Variables beside those of the container, and in place of those with the same name. */
  readonly env?: Readonly<Record<string, string>>;
  /** Gives it a terminal of this size: all output is then stdout. Needs capability `exec.tty`. */
  readonly tty?: TerminalSize;
}

/** Size of a terminal, in characters; both 1 or more. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/**
 * One piece of what a command is sent. `end` of a terminal's input types the end-of-file character.
 */
export type ExecInput =
  | { readonly kind: 'stdin'; readonly data: Uint8Array }
  | { readonly kind: 'end' }
  /** The terminal has another size; without a terminal it has no effect. */
  | ({ readonly kind: 'resize' } & TerminalSize);

/**
 * A command whose caller has gone gets SIGTERM and SIGHUP, and this many milliseconds later
 * SIGKILL.
 */
export const EXEC_GRACE_MS = 2_000;

/** What a command wrote and how it ended; a failing command is an exit code, not an error. */
export type ExecEvent =
  | { readonly kind: 'output'; readonly stream: LogStream; readonly data: Uint8Array }
  | { readonly kind: 'exited'; readonly exitCode: number };

/**
 * Runs containers or processes on this machine. Everything it runs outlives the caller's process; a
 * new caller finds it by `list` and goes on. Calls with an unknown container id throw kind
 * `notFound`.
 */
export interface ContainerRuntime {
  /** Name as in the workload's `runtime` field: `process` or `cri`. */
  readonly name: string;
  /** Version text of what stands behind it. */
  version(): Promise<string>;
  /**
   * What it can do, as the scheduler filters by: `runtime.process`, `limits.memory`, `exec.tty`…
   */
  capabilities(): readonly string[];
  /**
   * Does beforehand what takes long and is no work for this machine: fetches the image. The start
   * of the same container id then takes what was fetched. A start that was not prepared does it
   * itself, and tells nothing of it.
   * @param progress - Called with each step, before the promise settles.
   * @throws kind `invalid` for what is no image reference, `precondition` with the registry's own
   *   words when it cannot be fetched, or with policy `never` when it is not there, `unavailable`
   *   when the runtime does not answer.
   */
  prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void>;
  /**
   * Starts a container and resolves when its main process runs (it may have ended again).
   * @throws kind `invalid` for what can never start here (no command, unknown executable, missing
   *   directory), `exists` for an id in use, `exhausted` when ports, processes or space ran out,
   *   `unimplemented` for what this runtime lacks, `precondition` with the runtime's own words when
   *   it refuses. After `unavailable`, `deadline` and `internal` it may run all the same.
   */
  start(request: ContainerRequest): Promise<ContainerStatus>;
  /**
   * SIGTERM to all its processes, SIGKILL after `graceMs` (0: at once). Resolves when it has ended;
   * at once if it had. A second call with a shorter grace hastens the first.
   */
  stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus>;
  /**
   * Gives running containers these leases from now on, in place of the ones they had; undefined
   * lets them run without end. Unknown and ended ones, and those whose lease has ended already, are
   * passed over.
   * @throws kind `unimplemented` when capability `disconnect.exclusive` is missing.
   */
  renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void>;
  /**
   * Forgets an ended container with its logs and files. @throws kind `precondition` while it runs.
   * Unknown is no error.
   */
  remove(containerId: ContainerId): Promise<void>;
  /** All containers of this runtime that have not been removed. */
  list(): Promise<readonly ContainerStatus[]>;
  /**
   * Every start and exit from the call on; none between a `list` made after this call and the
   * events is lost (one may be seen twice). Ends when `signal` is aborted; throws kind
   * `unavailable` when the runtime went away.
   */
  events(signal: StopSignal): AsyncIterable<ContainerEvent>;
  /**
   * Lines in order of their sequence number, each once. Survives rotation. Ends when `signal` is
   * aborted.
   */
  logs(containerId: ContainerId, request: LogRequest, signal: StopSignal): AsyncIterable<LogLine>;
  /**
   * The same lines in batches of about 64 KiB at most, with a note of missing lines where rotation
   * removed lines before a follower, or a reader that resumes, has read them.
   */
  logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncIterable<LogBatch>;
  /**
   * Runs a command; the last event is `exited`. A reader that does not take what comes makes the
   * command wait. An aborted signal, or leaving the loop, ends the command and its children:
   * SIGTERM and SIGHUP, SIGKILL after {@link EXEC_GRACE_MS}. A program that does not exist ends
   * with 127, and one that cannot be executed with 126, each with a line on stderr (on a terminal
   * on stdout).
   * @throws kind `precondition` when the container is not running, `invalid` when the command is
   *   empty or malformed,
   *   `deadline` after the timeout, with what was written before it already delivered,
   *   `unimplemented` for a terminal where capability `exec.tty` is missing.
   */
  exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncIterable<ExecEvent>;
  /** Absent for a runtime that always answers. */
  health?(): RuntimeHealth;
  /** Lets go of connections and files. What runs goes on. */
  close(): Promise<void>;
}
