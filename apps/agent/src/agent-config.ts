import type { Taint_Effect } from '@cloudless/api';
import type { LogFormat } from '@cloudless/observability';

/** Taint of this node. */
export interface AgentTaint {
  readonly key: string;
  readonly value: string;
  readonly effect: Taint_Effect;
}

/** See {@link AgentConfig.network}. */
export type NetworkChoice = 'auto' | 'on' | 'off';

/** See {@link AgentConfig.runtime}. */
export type RuntimeChoice = 'auto' | 'process' | 'cri';

/** Complete settings of an agent. */
export interface AgentConfig {
  /** Id of the node: a DNS label, unique in the cluster. */
  readonly name: string;
  /**
   * Base addresses of coordinators, tried one after the other: all with `https://`, or all with
   * `http://` on this machine.
   */
  readonly coordinator: readonly string[];
  /** Text of a join token. Secret. */
  readonly joinToken: string | undefined;
  /** File with a join token, which takes precedence over `joinToken`; `-`: standard input. */
  readonly joinTokenFile: string | undefined;
  /** Absolute path of the data directory. */
  readonly dataDir: string;
  /** Address of AgentService; undefined: not served. Loopback only in a cluster without TLS. */
  readonly listen: { readonly host: string; readonly port: number } | undefined;
  readonly region: string;
  readonly zone: string;
  readonly label: Readonly<Record<string, string>>;
  readonly taint: readonly AgentTaint[];
  /** Maximum number of replicas on this node. */
  readonly maxReplicas: number;
  /** Maximum number of concurrent container starts. */
  readonly startConcurrency: number;
  /** CPU reserved for the system, thousandths of a core. */
  readonly reserveCpu: number;
  /** Memory reserved for the system, bytes. */
  readonly reserveMemory: number;
  /** Disk space reserved for the system, bytes. */
  readonly reserveStorage: number;
  /** Egress bandwidth of this machine in bits per second; 0: unknown, so none can be requested. */
  readonly bandwidth: number;
  /** Custom resources of this machine by name. */
  readonly customResource: Readonly<Record<string, number>>;
  /** Range of ports for workloads, both included. */
  readonly portRange: { readonly from: number; readonly to: number };
  /**
   * `process`: processes only. `cri`: containers too; the agent fails to start without a container
   * runtime. `auto`: containers if a container runtime is found.
   */
  readonly runtime: RuntimeChoice;
  /**
   * Absolute path of the container runtime's socket; undefined: the first usual socket that
   * answers.
   */
  readonly criSocket: string | undefined;
  /** Starts no processes; containers only. */
  readonly denyProcesses: boolean;
  /** Allows privileged containers. */
  readonly allowPrivileged: boolean;
  /**
   * Directories of this machine that containers may mount, including subdirectories; absolute
   * paths.
   */
  readonly allowHostPath: readonly string[];
  /** Devices of this machine that containers may use; absolute paths. */
  readonly allowDevice: readonly string[];
  /**
   * Kernel parameters that containers may set in addition to the safe ones, such as
   * `net.core.somaxconn`.
   */
  readonly allowSysctl: readonly string[];
  /** Limit of processes and threads for workloads that set none. */
  readonly maxPids: number;
  /** Stops all workloads when the agent stops; otherwise the next agent adopts them. */
  readonly stopWorkloadsOnExit: boolean;
  readonly logLevel: 'error' | 'warn' | 'info' | 'debug';
  readonly logFormat: LogFormat;
  /**
   * Address of /health, /ready and /metrics; undefined: not served. Loopback only in a cluster
   * without TLS.
   */
  readonly opsListen: { readonly host: string; readonly port: number } | undefined;
  /**
   * `on`: the node has a network proxy, and the agent fails to start without it. `auto`: on Linux the
   * node has a network proxy as far as possible. `off`: workloads of this node reach no services by
   * name, and services reach no replicas of this node from other machines.
   */
  readonly network: NetworkChoice;
  /**
   * Address at which the network proxies of other nodes connect with mutual TLS; undefined: the
   * default of `findDefaultMeshPort`; `none`: the proxy only dials out, and other proxies use the
   * relay of the coordinators.
   */
  readonly meshListen: { readonly host: string; readonly port: number } | 'none' | undefined;
  /** `host:port` at which other nodes reach the listener of `meshListen`; undefined: its address. */
  readonly meshAdvertise: string | undefined;
  /** Address at which the node serves HTTP routes without TLS; undefined: not served. */
  readonly ingressHttp: { readonly host: string; readonly port: number } | undefined;
  /** Address at which the node serves HTTP routes with TLS; undefined: not served. */
  readonly ingressHttps: { readonly host: string; readonly port: number } | undefined;
  /** Base address of an OTLP receiver of traces; undefined: no traces. */
  readonly otlpEndpoint: string | undefined;
  /**
   * Share, 0 to 1, of the TCP connections to services and of the HTTP requests of routes that is
   * traced, among those without a trace of their client.
   */
  readonly traceShare: number;
}
