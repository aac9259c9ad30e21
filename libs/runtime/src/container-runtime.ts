import type { ContainerId, StopSignal } from '@cloudless/base';

/** A port that the workload listens on. */
export interface PortRequest {
  /** DNS label, unique in the container. */
  readonly name: string;
  /**
   * Port number of the workload spec, 1 to 65535. With a network namespace per container, the
   * process listens on this port.
   */
  readonly port: number;
  readonly protocol: 'tcp' | 'udp';
  /** Port of the machine that is mapped to this port. Needs capability `ports.host`. */
  readonly hostPort?: number;
}

/** When an image is pulled; default `ifNotPresent`. */
export type PullPolicy = 'ifNotPresent' | 'always' | 'never';

/** User name and password at a registry. */
export interface ImageCredentials {
  readonly username: string;
  readonly password: string;
}

/** A signal that {@link ContainerRuntime.signal} sends. */
export type ContainerSignal =
  'SIGHUP' | 'SIGINT' | 'SIGQUIT' | 'SIGTERM' | 'SIGUSR1' | 'SIGUSR2' | 'SIGWINCH';

/** Capability of a runtime that implements {@link ContainerRuntime.signal}. */
export const SIGNAL_CAPABILITY = 'files.signal';

/** Capability of a runtime that enforces {@link NetworkRequest.egress}. */
export const EGRESS_CAPABILITY = 'network.egress';

/** Capability of a runtime whose processes use {@link NetworkRequest.dnsServers}. */
export const PROCESS_DNS_CAPABILITY = 'process.dns';

/** Directory or file mounted into a container. */
export interface VolumeRequest {
  /** DNS label, unique in the container. */
  readonly name: string;
  /** Absolute path inside the container. */
  readonly mountPath: string;
  readonly readOnly: boolean;
  readonly source:
    /**
     * A directory that the containers of a group share: created empty with the first container,
     * kept for the next containers, removed with the last container.
     */
    | { readonly kind: 'emptyDir'; readonly memory?: MemoryRequest }
    /** Directory or file of the machine. Needs capability `volumes.hostpath`. */
    | { readonly kind: 'hostPath'; readonly path: string }
    /**
     * Persistent directory of a workload; created when missing, never removed by the runtime. Each
     * part of the name is a DNS label.
     */
    | {
        readonly kind: 'named';
        readonly namespace: string;
        readonly workload: string;
        readonly name: string;
      }
    /**
     * Directory that the caller has created and keeps up to date. `inMemory`: a tmpfs is mounted
     * at `mountPoint`, by default the directory itself.
     */
    | {
        readonly kind: 'prepared';
        readonly path: string;
        readonly inMemory: boolean;
        readonly mountPoint?: string;
      };
}

/**
 * Stores the files of a volume in memory, where they count as memory of the container. Needs
 * capability `volumes.memory`.
 */
export interface MemoryRequest {
  /** Largest total size of the files. Absent: half of the machine's memory. */
  readonly sizeBytes?: number;
}

/**
 * Seccomp or AppArmor profile: the runtime's default, none, or a profile that is installed on the
 * machine (`reference` is a path, or a name for AppArmor).
 */
export type SecurityProfile =
  | { readonly kind: 'runtimeDefault' }
  | { readonly kind: 'unconfined' }
  | { readonly kind: 'localhost'; readonly reference: string };

/**
 * Privileges of a container. Absent fields get the least privileges of the runtime; see the README
 * of the runtime.
 */
export interface SecurityRequest {
  readonly runAsNonRoot?: boolean;
  readonly runAsUser?: number;
  /**
   * User name from the image's `/etc/passwd`, instead of `runAsUser`. Needs capability
   * `security.username`.
   */
  readonly userName?: string;
  /** Needs `runAsUser` or `userName`. */
  readonly runAsGroup?: number;
  /** Additional group ids. Needs capability `security.groups`. */
  readonly supplementalGroups?: readonly number[];
  /**
   * Additional group that owns empty directories and new files in them. Needs capability
   * `security.groups`.
   */
  readonly fsGroup?: number;
  readonly readOnlyRootFilesystem?: boolean;
  /** Upper-case names without `CAP_`, or `ALL`. Drops apply before adds. */
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
  /** IPv4 or IPv6 address. */
  readonly ip: string;
  /** At least one host name; labels of letters, digits, `-` and `_`, separated by dots. */
  readonly hostnames: readonly string[];
}

/** A range of ports, `first` to `last`, both included: 1 to 65535, `first` at most `last`. */
export interface EgressPortRange {
  readonly protocol: 'tcp' | 'udp';
  readonly first: number;
  readonly last: number;
}

/** A network to which a container may open connections. */
export interface EgressRule {
  /** IPv4 or IPv6 network in CIDR notation, without host bits: `10.0.0.0/8`, `2001:db8::1/128`. */
  readonly network: string;
  /** At least one range. Absent: every port of every protocol. */
  readonly ports?: readonly EgressPortRange[];
}

/**
 * Network settings of a container. A process has DNS settings only: the others need an image. A
 * process starts also where its DNS settings cannot be applied; `ContainerStatus.problems` then
 * says why.
 */
export interface NetworkRequest {
  /** Uses the network namespace of the machine. Needs capability `network.host`. */
  readonly hostNetwork?: boolean;
  readonly hostname?: string;
  /** IP addresses; absent: the DNS servers of the machine. */
  readonly dnsServers?: readonly string[];
  /**
   * Search domains. Only together with `dnsServers`. For a process, the search domains of the
   * machine follow.
   */
  readonly dnsSearches?: readonly string[];
  /** Options of the resolver, such as `ndots:2`. Only together with `dnsServers`. */
  readonly dnsOptions?: readonly string[];
  /** Additional lines of `/etc/hosts`, after localhost and the container's own name. */
  readonly extraHosts?: readonly ExtraHost[];
  /**
   * The networks to which the container may open connections, from its first instruction until
   * `limitEgress` replaces them. Port 53 of the DNS servers of the machine is allowed as well.
   * Absent: every destination. Empty: none. Needs capability `network.egress`.
   */
  readonly egress?: readonly EgressRule[];
}

/** Device of the machine. Needs capability `device.<hostPath>`. */
export interface DeviceRequest {
  readonly hostPath: string;
  /** Absolute path inside the container. */
  readonly containerPath: string;
  /** Any of `r`, `w` and `m`, in this order. */
  readonly permissions: string;
}

/**
 * Resource limit of each process, see setrlimit(2); -1 means no limit. Needs capability
 * `container.ulimits`.
 */
export interface UlimitRequest {
  /** Name as in `ulimit` and Docker: `nofile`, `core`… */
  readonly name: string;
  readonly soft: number;
  readonly hard: number;
}

/** Progress of the preparation of a start. */
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

/** Everything a runtime needs to start a container. */
export interface ContainerRequest {
  /** 64 hex digits, generated by the caller for each start. */
  readonly containerId: ContainerId;
  /** Labels that `list` returns; an agent identifies its containers by them. */
  readonly labels: Readonly<Record<string, string>>;
  /** Image reference; absent for a plain process. */
  readonly image?: string;
  /** Executable and first arguments; empty: the entry point of the image. */
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /**
   * Further environment variables, with confidential values; they replace variables of `env`. The
   * runtime writes the values to no file of its own and to no arguments. A container runtime that
   * the request is passed to keeps them with the container.
   */
  readonly secretEnv?: Readonly<Record<string, string>>;
  /**
   * Absolute path; absent: the default of the runtime (for processes, a new directory of the
   * container).
   */
  readonly workingDir?: string;
  readonly ports: readonly PortRequest[];
  /**
   * Enforced limits. CPU in millicores, memory in bytes, `pids` in processes and threads. Absent:
   * no limit, for `pids` the default of the runtime.
   */
  readonly limits: {
    readonly cpuMillis?: number;
    readonly memoryBytes?: number;
    readonly pids?: number;
  };
  /**
   * Reserved resources. They determine the CPU shares under contention and which container the
   * kernel kills first when memory runs out. Runtimes without cgroups ignore them.
   */
  readonly requests?: { readonly cpuMillis?: number; readonly memoryBytes?: number };
  readonly imagePull?: PullPolicy;
  /** Credentials for the registry of the image; used for pulls and never stored. */
  readonly imageCredentials?: ImageCredentials;
  /** Id of the replica. Its successive containers share their empty directories. */
  readonly group?: string;
  readonly volumes?: readonly VolumeRequest[];
  readonly security?: SecurityRequest;
  readonly network?: NetworkRequest;
  /**
   * Runs an init process as process 1, which reaps orphaned processes. Default true where the
   * runtime supports it; an explicit true needs capability `container.init`.
   */
  readonly init?: boolean;
  /** Size of /dev/shm; absent: the default of the runtime. Needs capability `container.shm`. */
  readonly shmSizeBytes?: number;
  /**
   * Namespaced kernel parameters by name: `net.ipv4.tcp_keepalive_time`. Each needs a capability
   * `sysctl.<name>`.
   */
  readonly sysctls?: Readonly<Record<string, string>>;
  readonly ulimits?: readonly UlimitRequest[];
  readonly devices?: readonly DeviceRequest[];
  /** Platform of the image, such as `linux/amd64`. Needs capability `platform.<platform>`. */
  readonly imagePlatform?: string;
  /**
   * Stops the container unless the lease is renewed; absent: no lease. Needs capability
   * `disconnect.exclusive`.
   */
  readonly lease?: ContainerLease;
}

/**
 * Lease of a container: without a renewal within `leaseMs`, the container gets SIGTERM, and SIGKILL
 * `graceMs` later. The runtime enforces the lease even when its caller has crashed or hangs. A
 * lease counts from the call of `start` or `renew`. A start whose lease ends before the process is
 * started may be refused with `unavailable`.
 */
export interface ContainerLease {
  readonly leaseMs: number;
  readonly graceMs: number;
}

/** Address at which a declared port is reached. */
export interface ContainerEndpoint {
  readonly portName: string;
  readonly ip: string;
  readonly port: number;
}

/**
 * `running`: the main process exists. `exited`: it has ended; `exitCode` and `finishedAtMs` are
 * set.
 */
export type ContainerPhase = 'running' | 'exited';

/** Status of one container. Times are wall-clock milliseconds since the epoch. */
export interface ContainerStatus {
  readonly containerId: ContainerId;
  readonly labels: Readonly<Record<string, string>>;
  readonly phase: ContainerPhase;
  /** Name of the runtime that has the container; set by combined runtimes. */
  readonly runtime?: string;
  /** Id of the container in containerd or CRI-O, as `crictl` prints it; absent for processes. */
  readonly runtimeId?: string;
  /** Digest of the resolved image in its registry, or the id of the image when it has no digest. */
  readonly imageDigest?: string;
  /** Process id of the main process while it runs. */
  readonly pid?: number;
  readonly startedAtMs: number;
  readonly finishedAtMs?: number;
  /**
   * 0 to 255; 128 + n after signal n, as shells count; -1 when the exit code could not be observed.
   */
  readonly exitCode?: number;
  /**
   * Reason of the exit as text for people: `completed`, `exit code 3`, `killed by SIGKILL`, `out of
   * memory`, `lost with the machine`.
   */
  readonly reason?: string;
  /** Set when the runtime stopped the container because its lease was not renewed. */
  readonly leaseEnded?: true;
  /**
   * Set when the container has its own cgroup, or its own network namespace, so that its statistics
   * can be read.
   */
  readonly ownCgroup?: true;
  readonly ownNetwork?: true;
  /**
   * Address in the container's own network while the container runs. On the same machine, ports
   * that are not declared are reached at this address too.
   */
  readonly ip?: string;
  readonly endpoints: readonly ContainerEndpoint[];
  /**
   * What the container lacks although it runs, as texts for people. Absent when there is nothing,
   * and when the container has exited.
   */
  readonly problems?: readonly string[];
}

/** Health of a runtime. `health()` makes no call. */
export interface RuntimeHealth {
  /** Time since the container runtime last answered a call, milliseconds; 0 while it answers. */
  readonly containersSilentMs: number;
  /** Time since the supervisor of processes last answered a call, milliseconds; 0 while it answers. */
  readonly processesSilentMs: number;
  /** Process id of the supervisor of processes; absent when it is not known. */
  readonly supervisorPid?: number;
  /** Containers that were running in the newest list and whose main process no longer exists. */
  readonly withoutProcess: readonly ContainerId[];
}

/** Health of a runtime that is available. */
export const HEALTHY: RuntimeHealth = {
  containersSilentMs: 0,
  processesSilentMs: 0,
  withoutProcess: [],
};

/** Kind of a replica's container: one from an image, or a plain process. */
export type ContainerKind = 'container' | 'process';

/** Containers of a runtime whose list may be incomplete. */
export interface AvailableContainers {
  readonly containers: readonly ContainerStatus[];
  /**
   * The kinds that are not listed, because their runtime has not answered yet since it was opened.
   * Empty: the list is complete. Once a kind is listed, it is listed by all later calls.
   */
  readonly missing: readonly ContainerKind[];
}

/** Start or exit of a container, with the status after it. */
export interface ContainerEvent {
  readonly kind: 'started' | 'exited';
  readonly status: ContainerStatus;
}

export type LogStream = 'stdout' | 'stderr';

/** One line of output without its line feed. */
export interface LogLine {
  /** Number of the line in its container, over both streams, from 1 without gaps. */
  readonly sequence: bigint;
  readonly stream: LogStream;
  /** Time at which the runtime read the line, wall-clock milliseconds since the epoch. */
  readonly timeMs: number;
  /**
   * Bytes of the line; output may not be UTF-8. At most 16 KiB: a longer line continues in the next
   * entry, marked by `partial`.
   */
  readonly text: Uint8Array;
  /** The line continues in the next entry of the same stream. */
  readonly partial: boolean;
}

/** Lines of one container that were read at the same time. */
export interface LogBatch {
  /** Ordered by sequence number; empty only together with `skipped`. */
  readonly lines: readonly LogLine[];
  /** Lines that are missing before `lines`. */
  readonly skipped?: SkippedLines;
}

/** Lines that log rotation removed before a reader reached them. */
export interface SkippedLines {
  readonly firstSequence: bigint;
  readonly lastSequence: bigint;
  /** Size in bytes of these lines in the log files; undefined when the size is not known. */
  readonly bytes?: number;
}

/** Selection of log lines. All conditions apply together. */
export interface LogRequest {
  /** Continues with new lines until the container has exited and all lines are read. */
  readonly follow: boolean;
  /** Only the last n existing lines, then new lines with `follow`; 0 selects only new lines. */
  readonly tailLines?: number;
  /** Only lines at or after this time, milliseconds since the epoch. */
  readonly sinceMs?: number;
  /** Only lines after this sequence number; resumes an earlier read. */
  readonly afterSequence?: bigint;
  /** Only lines of these streams; absent: both. */
  readonly streams?: readonly LogStream[];
}

/**
 * Command to run in a container, with the environment and working directory of its main process.
 */
export interface ExecRequest {
  /** Executable and arguments. */
  readonly command: readonly string[];
  /** Kills the command after this many milliseconds; the call then fails with kind `deadline`. */
  readonly timeoutMs?: number;
  /** The complete input. */
  readonly stdin?: Uint8Array;
  /**
   * Streamed input instead of `stdin`. The runtime reads the iterable only as fast as the command
   * reads, closes the input of the command at its end, and calls its `return` when the command
   * exits or cannot be started.
   */
  readonly input?: AsyncIterable<ExecInput>;
  /** Additional environment variables; they replace variables of the container. */
  readonly env?: Readonly<Record<string, string>>;
  /** Allocates a terminal of this size; all output is then stdout. Needs capability `exec.tty`. */
  readonly tty?: TerminalSize;
}

/** Size of a terminal in characters; both values 1 or more. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Input of a command. With a terminal, `end` sends the end-of-file character. */
export type ExecInput =
  | { readonly kind: 'stdin'; readonly data: Uint8Array }
  | { readonly kind: 'end' }
  /** Changes the terminal size; no effect without a terminal. */
  | ({ readonly kind: 'resize' } & TerminalSize);

/**
 * A command whose caller has disconnected gets SIGTERM and SIGHUP, and SIGKILL this many
 * milliseconds later.
 */
export const EXEC_GRACE_MS = 2_000;

/** Output and exit of a command. A command that fails yields its exit code, not an error. */
export type ExecEvent =
  | { readonly kind: 'output'; readonly stream: LogStream; readonly data: Uint8Array }
  | { readonly kind: 'exited'; readonly exitCode: number };

/**
 * Runs containers or processes on this machine. The containers outlive the process of the caller;
 * a new caller finds them by `list`. Calls with an unknown container id throw kind `notFound`.
 */
export interface ContainerRuntime {
  /** Name as in the workload's `runtime` field: `process` or `cri`. */
  readonly name: string;
  /** Version of the container runtime, for people. */
  version(): Promise<string>;
  /** Returns the capabilities of the node: `runtime.process`, `limits.memory`, `exec.tty`… */
  capabilities(): readonly string[];
  /**
   * Pulls the image of a request before its start. A start of the same container id then uses the
   * pulled image. A start without preparation pulls the image itself, without progress.
   * @param progress - Called with each step, before the promise settles.
   * @throws kind `invalid` for a malformed image reference; `precondition` with the message of the
   *   registry when the pull fails, or when the image is missing under policy `never`;
   *   `unavailable` when the runtime does not answer.
   */
  prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void>;
  /**
   * Starts a container. Resolves when its main process runs (it may already have exited again).
   * @throws kind `invalid` for a request that can never succeed on this machine (no command,
   *   unknown executable, missing directory); `exists` for an id in use; `exhausted` when ports,
   *   processes or space ran out; `unimplemented` for a missing capability; `precondition` with the
   *   message of the runtime when it rejects the request. After `unavailable`, `deadline` and
   *   `internal` the container may be running nevertheless.
   */
  start(request: ContainerRequest): Promise<ContainerStatus>;
  /**
   * Sends SIGTERM to all processes, and SIGKILL after `graceMs` (0: at once). Resolves when the
   * container has exited, at once if it had exited before. A concurrent call with a shorter grace
   * period shortens the grace period of the first call.
   */
  stop(containerId: ContainerId, graceMs: number): Promise<ContainerStatus>;
  /**
   * Sends a signal to the main process of a container, and to no other process.
   * @throws kind `precondition` when the container is not running; `unimplemented` without
   *   capability `files.signal`.
   */
  signal(containerId: ContainerId, signal: ContainerSignal): Promise<void>;
  /**
   * Replaces the leases of running containers; undefined removes the lease. Skips unknown and
   * exited containers, and containers whose lease has already ended.
   * @throws kind `unimplemented` when capability `disconnect.exclusive` is missing; `unavailable`
   *   when the runtime does not answer, or when a lease ended before the runtime received its
   *   renewal: the container then keeps its earlier lease, and the other leases are replaced.
   */
  renew(leases: ReadonlyMap<ContainerId, ContainerLease | undefined>): Promise<void>;
  /**
   * Replaces the networks to which a running container may open connections. Open connections
   * continue.
   * @param rules - As in {@link NetworkRequest.egress}.
   * @throws kind `invalid` for a rule that is not valid; `notFound` for an unknown id;
   *   `precondition` when the container is not running, was started without `egress`, or the machine
   *   refuses the rules; `unimplemented` without capability `network.egress`. The earlier rules stay
   *   in force after each of these.
   */
  limitEgress(containerId: ContainerId, rules: readonly EgressRule[]): Promise<void>;
  /**
   * Removes an exited container with its logs and files. Does nothing for an unknown id.
   * @throws kind `precondition` while the container runs.
   */
  remove(containerId: ContainerId): Promise<void>;
  /** Lists all containers that have not been removed. */
  list(): Promise<readonly ContainerStatus[]>;
  /**
   * Lists as `list` does, but without the containers of a part that has never been listed. Waits at
   * most 2 s for that part. Absent for a runtime that has answered when it is opened.
   * @throws kind `unavailable` when a runtime without parts does not answer, or is closed.
   */
  listAvailable?(): Promise<AvailableContainers>;
  /**
   * Yields all starts and exits from this call on. No event between this call and a later `list` is
   * lost; an event may be seen in both. Ends when `signal` is aborted.
   * @throws kind `unavailable` when the runtime becomes unavailable, `exhausted` when the reader is
   *   too slow.
   */
  events(signal: StopSignal): AsyncIterable<ContainerEvent>;
  /**
   * Yields log lines in order of their sequence number, each once, across log rotation. Ends when
   * all requested lines were yielded or `signal` is aborted.
   */
  logs(containerId: ContainerId, request: LogRequest, signal: StopSignal): AsyncIterable<LogLine>;
  /**
   * Yields the same lines as `logs` in batches of up to about 64 KiB. Reports lines that rotation
   * removed before a reader that follows or resumes has read them.
   */
  logBatches(
    containerId: ContainerId,
    request: LogRequest,
    signal: StopSignal,
  ): AsyncIterable<LogBatch>;
  /**
   * Runs a command; the last event is `exited`. A caller that does not read delays the command. An
   * aborted signal, or leaving the loop, ends the command and its children: SIGTERM and SIGHUP,
   * SIGKILL after {@link EXEC_GRACE_MS}. The exit code is 127 for a program that does not exist and
   * 126 for a program that cannot be executed, each with a message on stderr (with a terminal on
   * stdout).
   * @throws kind `precondition` when the container is not running; `invalid` when the command is
   *   empty or malformed; `deadline` after the timeout, after all earlier output; `unimplemented`
   *   for a terminal without capability `exec.tty`.
   */
  exec(
    containerId: ContainerId,
    request: ExecRequest,
    signal: StopSignal,
  ): AsyncIterable<ExecEvent>;
  /** Returns the health of the runtime. Absent for a runtime that is always available. */
  health?(): RuntimeHealth;
  /** Closes connections and files. Containers keep running. */
  close(): Promise<void>;
}
