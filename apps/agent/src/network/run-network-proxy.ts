import { readFileSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import {
  CloudlessError,
  definedFields,
  errorFields,
  type Clock,
  type Log,
  type Random,
} from '@cloudless/base';
import type { ServiceAccess } from '@cloudless/agent-core';
import { acquireDirectoryLock, createFileLog } from '@cloudless/app-kit/background';
import { createNetworkProxy, type CoordinatorConnection, type NetworkProxy } from '@cloudless/mesh';
import { createMetrics, type Metrics } from '@cloudless/observability';
import { VERSION } from '@cloudless/app-kit';
import { toClientTls } from '../identity/node-identity.js';
import { checkGrpc } from '../probes/check-grpc.js';
import { checkHttp } from '../probes/check-http.js';
import { checkTcp } from '../probes/check-tcp.js';
import { CertificateCopies, removeCertificateCopies } from './certificate-copies.js';
import type { ControlHandler } from './control-server.js';
import { ControlServer } from './control-server.js';
import { CoordinatorDialler } from './coordinator-dialler.js';
import { SETTINGS_FILE, type ControlStatus, type ProxySettings } from './control-messages.js';
import { DrainBound } from './drain-bound.js';
import { DRAIN_AT_SHUTDOWN_MS, endDrainingProxies, recordDraining } from './draining-proxies.js';
import { endTakeover } from './end-takeover.js';
import { handOver, inherit, SUCCESSOR_FLAG, type Inheritance } from './handover.js';
import { listHostAddresses, listLocalAddresses } from './host-addresses.js';
import { ProcessSockets } from './listening-sockets.js';
import { createMeshAddressSource } from './local-mesh-address.js';
import { createNodeIngress, explainIngressAddress, type NodeIngress } from './node-ingress.js';
import { prepareLockDirectory, readNamespaceName } from './lock-directory.js';
import { explainHolder, NamespaceLock } from './namespace-lock.js';
import { ProxyIdentityReader } from './proxy-identity.js';
import { ERROR_FILE } from './proxy-program.js';
import { ProxyTracer, type StartTracing } from './proxy-tracer.js';
import { prepareVirtualRange, removeVirtualRange } from './virtual-range.js';

/** File with the last known network. */
const SNAPSHOT_FILE = 'snapshot';
const LOG_FILE = 'proxy.log';
/** Longest time for which a predecessor keeps its connections after an upgrade, milliseconds. */
const DRAIN_AFTER_UPGRADE_MS = 3_600_000;
/** Interval at which the proxy looks whether its directory still exists, milliseconds. */
const DIRECTORY_CHECK_MS = 10_000;

export interface NetworkProxyProcessOptions {
  /** Arguments of the process: the absolute directory, last, and {@link SUCCESSOR_FLAG} before. */
  readonly args: readonly string[];
  readonly startTracing: StartTracing;
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * Runs the network proxy of a node in this process until an agent shuts it down or its directory is
 * removed. Changes the working directory of the process. Resolves when the proxy has ended; at once
 * when another process serves the directory.
 * @throws kind `invalid` for malformed arguments, `precondition` without settings.
 */
export async function runNetworkProxy({
  args,
  startTracing,
  clock,
  random,
}: NetworkProxyProcessOptions): Promise<void> {
  const directory = args.at(-1) ?? '';
  if (!isAbsolute(directory))
    throw new CloudlessError('invalid', 'network-proxy: expected the absolute directory');
  process.chdir(directory);
  const isSuccessor = args.includes(SUCCESSOR_FLAG);
  const inheritance = isSuccessor ? await inherit() : undefined;
  if (!acquireDirectoryLock(directory, isSuccessor ? process.ppid : undefined)) return;
  const log = createFileLog(join(directory, LOG_FILE), clock, {
    component: 'network-proxy',
    pid: process.pid,
  });
  const onFault = (reason: unknown): void => log.error('proxy fault', errorFields(reason));
  process.on('uncaughtException', onFault).on('unhandledRejection', onFault);
  process.on('SIGHUP', () => undefined).on('SIGINT', () => undefined);
  const running = new ProxyProcess(directory, { startTracing, clock, random, log }, inheritance);
  process.on('SIGTERM', () => running.stop(DRAIN_AT_SHUTDOWN_MS));
  try {
    await running.run();
  } finally {
    log.info('proxy ended');
  }
}

/** The network proxy with its control socket, its lock and its identity. */
class ProxyProcess implements ControlHandler {
  private current: ProxySettings;
  private readonly identity: ProxyIdentityReader;
  private readonly lock: NamespaceLock;
  private readonly sockets: ProcessSockets;
  private readonly metrics: Metrics = createMetrics({ selfPrefix: 'cloudless_network_metrics' });
  private readonly proxy: NetworkProxy;
  private readonly ingress: NodeIngress | undefined;
  private readonly draining: DrainBound;
  private readonly tracer: ProxyTracer;
  private control: ControlServer | undefined;
  private end: () => void = () => undefined;
  private readonly ended = new Promise<void>((resolve) => (this.end = resolve));
  private isHandingOver = false;
  /** Ends with the earlier processes that drain; set by a shutdown. */
  private predecessors: Promise<void> = Promise.resolve();
  /** Removes the record of a process that has begun an upgrade. */
  private removeRecord: (() => void) | undefined;

  constructor(
    private readonly directory: string,
    private readonly deps: Pick<NetworkProxyProcessOptions, 'startTracing' | 'clock' | 'random'> & {
      readonly log: Log;
    },
    private readonly inheritance: Inheritance | undefined,
  ) {
    const { clock, random, log } = deps;
    const settings = (this.current = readSettings());
    const { nodeId, zone, region, hostId, meshListen, usesTls, dataDir } = settings;
    this.identity = new ProxyIdentityReader(dataDir, log);
    this.lock = new NamespaceLock(
      () => ({ nodeId, pid: process.pid, ...definedFields({ clusterId: this.current.clusterId }) }),
      {
        directory: () => prepareLockDirectory({ uid: process.getuid?.() ?? 0 }),
        namespace: readNamespaceName(),
        ...{ clock, log },
      },
    );
    if (inheritance?.lock !== undefined) {
      const { server, path } = inheritance.lock;
      this.lock.adopt(server, path);
    }
    this.sockets = new ProcessSockets(inheritance?.sockets);
    this.tracer = new ProxyTracer(deps);
    const dialler = new CoordinatorDialler({
      addresses: () => this.current.coordinators,
      tls: () => {
        const { node } = this.identity;
        if (node !== undefined) return toClientTls(node);
        throw new CloudlessError('unavailable', 'this machine has not joined its cluster yet');
      },
      clock,
    });
    this.draining = new DrainBound(
      clock,
      (withinMs) => Promise.all([this.proxy.drain(withinMs), this.ingress?.drain(withinMs)]),
      () => this.end(),
    );
    this.proxy = createNetworkProxy({
      ...{ nodeId, zone, region, hostId, meshListen },
      meshAddressSource: createMeshAddressSource(settings, () => this.current.coordinators),
      identity: usesTls ? this.identity : undefined,
      connect: (signal) => this.connect(dialler, signal),
      sockets: this.sockets,
      checkClients: { tcp: checkTcp, http: checkHttp, grpc: checkGrpc },
      listMachineAddresses: () => listHostAddresses(),
      explainReserved: (listener) => explainIngressAddress(settings, listener),
      prepareRange: (cidr) => prepareVirtualRange(cidr, this.directory),
      mayListen: (signal) => this.lock.acquire(signal),
      snapshotFile: join(directory, SNAPSHOT_FILE),
      ...{ clock, random, log },
      meter: this.metrics,
      tracer: this.tracer,
    });
    this.ingress = createNodeIngress(settings, {
      proxy: this.proxy,
      sockets: this.sockets,
      meter: this.metrics,
      tracer: this.tracer,
      ...{ clock, random, log },
      copies: new CertificateCopies(directory, { clock, log }),
      listAddresses: () => listLocalAddresses(),
    });
  }

  /** Serves until the proxy is stopped. */
  async run(): Promise<void> {
    const { log } = this.deps;
    this.watchDirectory();
    this.tracer.start(this.current);
    await this.identity.reload();
    await this.proxy.start();
    await this.ingress?.start();
    await this.inheritance?.takeOver();
    if (this.current.ingressHttps === undefined) await this.removeCertificates();
    this.control = await ControlServer.listen(this, log);
    endTakeover(this.sockets, { ...this.deps, isHandingOver: () => this.isHandingOver });
    log.info('proxy began', { version: VERSION, inherited: this.inheritance?.sockets.length ?? 0 });
    await this.ended;
    this.control.close();
    this.lock.release();
    this.ingress?.close();
    await this.proxy.close();
    await this.tracer.close();
    await this.predecessors;
    this.removeRecord?.();
  }

  /**
   * Ends the process after its connections have ended, or `withinMs` milliseconds. The shortest
   * time counts, also for a process that drains after an upgrade.
   */
  stop(withinMs: number): void {
    this.draining.stop(withinMs);
  }

  /** Connects to a coordinator, and lends the connection to the ingress until the connection ends. */
  private async connect(
    dialler: CoordinatorDialler,
    signal: AbortSignal,
  ): Promise<CoordinatorConnection> {
    const connection = await dialler.connect(signal);
    const endUse = this.ingress?.useConnection(connection);
    return {
      ...connection,
      close: () => {
        endUse?.();
        connection.close();
      },
    };
  }

  /** Removes the keys of routes from a node that has ended its ingress with TLS. */
  private async removeCertificates(): Promise<void> {
    try {
      await removeCertificateCopies(this.directory);
    } catch (reason) {
      this.deps.log.warn('copies of certificates not removed', errorFields(reason));
    }
  }

  settings = (): ProxySettings => this.current;

  async answer(
    request: Parameters<ControlHandler['answer']>[0],
  ): ReturnType<ControlHandler['answer']> {
    switch (request.type) {
      case 'services':
        return { type: 'services', access: this.findServices(request.namespace) };
      case 'addresses':
        return {
          type: 'addresses',
          ...definedFields({ addresses: this.proxy.listServiceAddresses(request.patterns) }),
        };
      case 'status':
        return { type: 'status', status: this.toStatus() };
      case 'metrics':
        return { type: 'metrics', text: await this.metrics.expose() };
      case 'reload':
        this.current = readSettings();
        this.lock.announce();
        await this.identity.reload();
        return { type: 'done' };
      case 'ended':
        this.proxy.endReplicas(request.replicaIds);
        return { type: 'done' };
      case 'upgrade':
        await this.upgrade(request.command);
        return { type: 'done' };
      case 'shutdown':
        if (this.lock.socket !== undefined) await removeVirtualRange(this.directory);
        this.removeRecord?.(); // a hand-over may be under way
        this.predecessors = endDrainingProxies(this.directory, this.deps.clock);
        setImmediate(() => this.stop(0));
        return { type: 'done' };
      default:
        throw new CloudlessError('unimplemented', 'this proxy does not know the request');
    }
  }

  acceptRelay: ControlHandler['acceptRelay'] = (fromNodeId, socket) =>
    this.proxy.acceptRelay(fromNodeId, socket);

  /**
   * Returns names, addresses and DNS server for a new container; undefined until the proxy knows
   * the network.
   */
  private findServices(namespace: string): ServiceAccess | undefined {
    const { settings } = this.proxy.view;
    if (settings === undefined) return undefined;
    const services = this.proxy
      .listServices(namespace)
      .flatMap(({ name, clusterIp, ports }) =>
        clusterIp === ''
          ? []
          : [{ name, address: clusterIp, ports: ports.map(({ name, port }) => ({ name, port })) }],
      );
    const server = this.findDnsServer();
    return {
      services,
      ...(server === undefined ? {} : { dns: { server, domain: settings.clusterDomain } }),
    };
  }

  /** Workloads ask port 53 only. Another proxy of the cluster may serve this machine. */
  private findDnsServer(): string | undefined {
    const own = this.proxy.dns();
    if (own !== undefined) return own.port === 53 ? own.address : undefined;
    const isServedByOther = this.lock.socket === undefined && this.findLockProblem() === undefined;
    return isServedByOther ? this.proxy.view.settings?.dnsAddress : undefined;
  }

  /**
   * Returns why no proxy serves the virtual addresses of this cluster on this machine; undefined: a
   * proxy serves them, or the nodes are not known yet.
   */
  private findLockProblem(): string | undefined {
    const { holder, problem, socket } = this.lock;
    if (socket !== undefined) return undefined;
    if (holder === undefined) return problem;
    const isKnown = this.proxy.status().revision > 0n;
    const { nodeId, clusterId } = this.current;
    const isNode = isKnown ? (id: string) => this.proxy.view.nodes.has(id) : undefined;
    return explainHolder(holder, { nodeId, clusterId, isNode });
  }

  private toStatus(): ControlStatus {
    const status = this.proxy.status();
    const lockProblem = this.findLockProblem();
    return {
      ...status,
      revision: String(status.revision),
      servesAddresses: this.lock.socket !== undefined,
      problems: [
        ...status.problems,
        ...(lockProblem === undefined ? [] : [lockProblem]),
        ...(this.ingress?.problems ?? []),
      ],
    };
  }

  /** Hands the sockets over to a new process. This process ends once its connections have ended. */
  private async upgrade(command: readonly string[]): Promise<void> {
    if (this.isHandingOver)
      throw new CloudlessError('precondition', 'the proxy is being replaced already');
    this.isHandingOver = true;
    const { log } = this.deps;
    try {
      // First the record: from the takeover on, a shutdown asks the successor only.
      this.removeRecord = recordDraining(this.directory);
      await handOver(
        [...command, SUCCESSOR_FLAG, this.directory],
        join(this.directory, ERROR_FILE),
        { sockets: this.sockets.list(), lock: this.lock.handed },
        () => setImmediate(() => this.control?.close()),
      );
    } catch (reason) {
      this.isHandingOver = false;
      this.removeRecord?.();
      log.error('proxy not replaced', errorFields(reason));
      throw reason;
    }
    log.info('proxy replaced: it ends with its last connection');
    this.lock.release();
    this.stop(DRAIN_AFTER_UPGRADE_MS);
  }

  /** Ends the proxy of a data directory that was removed without a reset. */
  private watchDirectory(): void {
    this.deps.clock.setTimer(DIRECTORY_CHECK_MS, () => {
      try {
        readSettings();
      } catch {
        this.deps.log.warn('directory of the proxy is gone');
        return this.stop(0);
      }
      this.watchDirectory();
    });
  }
}

function readSettings(): ProxySettings {
  return JSON.parse(readFileSync(SETTINGS_FILE, 'utf8')) as ProxySettings;
}
