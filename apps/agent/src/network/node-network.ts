import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  backoffDelayMs,
  definedFields,
  CloudlessError,
  errorFields,
  sleep,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
} from '@cloudless/base';
import type {
  NodeNetworkAccess,
  ServiceAccess,
  ServiceAddress,
  TcpStream,
} from '@cloudless/agent-core';
import { VERSION } from '@cloudless/app-kit';
import { connectOrStart, type StartedProgram } from '@cloudless/app-kit/background';
import { isNoSpace } from '../data/disk-reserve.js';
import { toTcpStream } from '../machine/dial-tcp.js';
import { ControlClient, openRelaySocket } from './control-client.js';
import { EndedReports } from './ended-reports.js';
import { removeNetworkProxy } from './remove-network-proxy.js';
import type { ControlResponse, ControlStatus, ProxySettings } from './control-messages.js';
import { ERROR_FILE, NETWORK_FOLDER, toProxyProgram } from './proxy-program.js';
import { ProxyProblems } from './proxy-problems.js';
import { writeProxySettings } from './proxy-settings.js';

/** Delay between attempts to start a proxy that ends or does not answer. */
const BACKOFF: BackoffPolicy = { firstMs: 100, maxMs: 10_000, jitter: 0.2 };
/** A proxy that ends after this time is started again without a delay, milliseconds. */
const STEADY_MS = 5_000;
/**
 * Time after the start of the agent for which new containers wait for what the proxy knows,
 * milliseconds. A container that starts without a DNS server never gets one.
 */
const FIRST_ANSWER_MS = 5_000;
/** Longest wait for an answer later, milliseconds. */
const ANSWER_MS = 1_000;
const POLL_MS = 50;
/** Wait of a start for the address of the listener of the settings, or of the default one, ms. */
const LISTENER_MS = 10_000;
const DEFAULT_LISTENER_MS = 2_000;
/** Time between two questions for the status of the proxy, milliseconds. */
const STATUS_MS = 5_000;

export interface NodeNetworkOptions {
  /** Command of the proxy, to which the directory is appended. */
  readonly proxyCommand: readonly string[];
  readonly settings: ProxySettings;
  /** The proxy that this process has started before, if it has. */
  readonly started?: StartedProgram | undefined;
  /** Address at which other proxies reach this one; empty: that of the listener. */
  readonly advertise: string;
  /** True: the agent cannot work without its proxy. */
  readonly isRequired: boolean;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** The network proxy of a node, as its agent sees it: starts, upgrades and asks the proxy. */
export class NodeNetwork implements NodeNetworkAccess {
  private readonly directory: string;
  private readonly closing = new AbortController();
  private client: ControlClient | undefined;
  private meshAddress: ControlStatus['meshAddress'];
  private settings: ProxySettings;
  private readonly startedAtMs: number;
  private started: StartedProgram | undefined;
  private readonly loop: Promise<void>;
  /** True: a proxy that this process has started, and that does not answer yet, is kept. */
  private keepsProxy = false;
  private readonly ended = new EndedReports();
  private readonly problems: ProxyProblems;
  /** Newest answer for each namespace. */
  private readonly known = new Map<string, ServiceAccess>();

  /** Begins to start the proxy, or to connect to the proxy that an earlier agent has started. */
  constructor(private readonly options: NodeNetworkOptions) {
    this.settings = options.settings;
    this.directory = join(options.settings.dataDir, NETWORK_FOLDER);
    this.started = options.started;
    this.startedAtMs = options.clock.now();
    this.problems = new ProxyProblems(this.startedAtMs, join(this.directory, ERROR_FILE));
    this.writeSettings();
    this.loop = this.run();
  }

  /** Writes the settings. A full disk ends no agent: the proxy goes on with its earlier settings. */
  private writeSettings(): void {
    try {
      writeProxySettings(this.settings);
    } catch (reason) {
      if (!isNoSpace(reason)) throw reason;
      this.options.log.warn('the disk is full: the proxy keeps its settings', errorFields(reason));
    }
  }

  /**
   * Waits until the proxy answers: up to 60 s for a required proxy, up to 10 s with `meshListen`, and
   * up to 2 s with the default listener. The coordinator learns an address that is known later by a
   * new session.
   * @throws kind `unavailable` when the proxy is required and does not answer;
   *   {@link StoppedError} when `signal` is aborted.
   */
  async waitUntilReady(signal?: AbortSignal): Promise<void> {
    const { isRequired, settings, advertise, clock } = this.options;
    const hasListener = settings.meshListen !== undefined && advertise === '';
    const listenerMs = settings.defaultMeshPort === undefined ? 0 : DEFAULT_LISTENER_MS;
    const waitMs = isRequired ? 60_000 : hasListener ? LISTENER_MS : listenerMs;
    const deadlineMs = clock.now() + waitMs;
    while (this.client === undefined && clock.now() < deadlineMs)
      await sleep(clock, POLL_MS, signal);
    if (this.client === undefined && isRequired) {
      throw new CloudlessError(
        'unavailable',
        `the network proxy of this node does not start; see ${join(this.directory, ERROR_FILE)}, or run the agent with --network off`,
      );
    }
  }

  /** Returns the address and host id by which other proxies reach this node, for the Hello. */
  describe(): { readonly address: string; readonly hostId: string } {
    const { settings, advertise } = this.options;
    const { meshListen, hostId } = settings;
    const { meshAddress } = this;
    if (meshListen === undefined) {
      if (meshAddress === undefined) return { address: '', hostId };
      const host = isIPv6(meshAddress.address) ? `[${meshAddress.address}]` : meshAddress.address;
      return { address: advertise === '' ? `${host}:${meshAddress.port}` : advertise, hostId };
    }
    const port = meshAddress?.port ?? meshListen.port;
    if (port === 0) return { address: '', hostId };
    return { address: advertise === '' ? `${meshListen.host}:${port}` : advertise, hostId };
  }

  async findServices(namespace: string): Promise<ServiceAccess | undefined> {
    const { clock } = this.options;
    const deadlineMs = Math.max(this.startedAtMs + FIRST_ANSWER_MS, clock.now() + ANSWER_MS);
    const isFirst = this.known.size === 0;
    for (;;) {
      const access = await this.askServices(namespace, deadlineMs - clock.now());
      if (access !== undefined) this.known.set(namespace, access);
      // A proxy that knows nothing yet is worth a wait only while it may be starting.
      const isLate = clock.now() >= (isFirst ? this.startedAtMs + FIRST_ANSWER_MS : deadlineMs);
      if (access !== undefined || isLate || this.closing.signal.aborted)
        return access ?? this.known.get(namespace) ?? this.findKnownDns();
      await sleep(clock, POLL_MS, this.closing.signal).catch(() => undefined);
    }
  }

  async findServiceAddresses(
    patterns: readonly string[],
  ): Promise<readonly ServiceAddress[] | undefined> {
    const response = await this.ask({ type: 'addresses', patterns }, ANSWER_MS);
    return response?.type === 'addresses' ? response.addresses : undefined;
  }

  findProblem(): string {
    return this.problems.describe(this.options.clock.now());
  }

  async openRelay(fromNodeId: string): Promise<TcpStream> {
    return toTcpStream(
      await openRelaySocket(this.directory, fromNodeId),
      'the network proxy of this node',
    );
  }

  /** Makes the proxy read its settings and the identity of the node again. */
  reloadIdentity(): void {
    void this.client?.request({ type: 'reload' }).catch(() => undefined);
  }

  /** Gives the proxy the cluster and the addresses of coordinators, as the agent learns them. */
  setCluster(clusterId: string | undefined, coordinators: readonly string[]): void {
    const learned = { coordinators, ...definedFields({ clusterId }) };
    const settings = { ...this.settings, ...learned };
    if (isDeepStrictEqual(settings, this.settings)) return;
    this.settings = settings;
    try {
      writeProxySettings(this.settings);
    } catch (reason) {
      this.options.log.warn('settings of the network proxy not written', errorFields(reason));
    }
    this.reloadIdentity();
  }

  /** Tells the proxy that replicas have ended, so that it resets their connections. */
  noteEnded(replicaIds: readonly string[]): void {
    this.ended.note(replicaIds);
  }

  /** Returns the metrics of the proxy in the text format of Prometheus; empty without an answer. */
  async renderMetrics(): Promise<string> {
    const response = await this.ask({ type: 'metrics' }, ANSWER_MS);
    return response?.type === 'metrics' ? response.text : '';
  }

  /**
   * Ends the connection to the proxy.
   * @param stopProxy - True also ends the proxy; false keeps it for the replicas that run on.
   */
  async close(stopProxy: boolean): Promise<void> {
    this.keepsProxy = !stopProxy;
    const wasConnected = this.client !== undefined;
    if (stopProxy) await this.ask({ type: 'shutdown' }, ANSWER_MS);
    this.closing.abort();
    this.client?.close();
    await this.loop;
    // A proxy may have begun to answer meanwhile.
    if (stopProxy && !wasConnected) await removeNetworkProxy(this.directory);
  }

  private async run(): Promise<void> {
    const { clock, random, log } = this.options;
    let failures = 0;
    while (!this.closing.signal.aborted) {
      let reachedAtMs = Infinity;
      try {
        await this.serve(() => {
          failures = 0;
          reachedAtMs = clock.now();
        });
      } catch (reason) {
        if (this.closing.signal.aborted) return;
        if (failures === 0) log.warn('network proxy not reached', errorFields(reason));
      }
      if (clock.now() - reachedAtMs >= STEADY_MS) continue; // clients wait for the next proxy
      failures += 1;
      const delayMs = backoffDelayMs(BACKOFF, failures, random);
      await sleep(clock, delayMs, this.closing.signal).catch(() => undefined);
    }
  }

  /** Connects to the proxy and resolves when the connection has ended. */
  private async serve(onReached: () => void): Promise<void> {
    const { proxyCommand, settings, clock, log } = this.options;
    const { started } = this;
    this.started = undefined;
    let onClosed: () => void = () => undefined;
    const closed = new Promise<void>((resolve) => (onClosed = resolve));
    const { client, hello } = await connectOrStart(
      () => ControlClient.open(this.directory, () => onClosed()),
      {
        ...toProxyProgram(settings.dataDir, proxyCommand),
        outlivesAbort: () => this.keepsProxy,
      },
      clock,
      this.closing.signal,
      started,
    );
    try {
      if (await this.align(client, hello)) return;
      const response = await client.request({ type: 'status' });
      this.noteStatus(response);
      if (this.closing.signal.aborted) return; // `close` did not see this client
      this.client = client;
      this.ended.connect((request) => client.request(request));
      onReached();
      log.info('network proxy connected', { proxyPid: hello.pid, proxyVersion: hello.version });
      await this.watchStatus(closed);
      if (!this.closing.signal.aborted) log.warn('network proxy lost');
    } finally {
      this.client = undefined;
      this.problems.noteSilence(clock.now());
      this.ended.disconnect();
      client.close();
    }
  }

  /** Reads the status of the proxy every {@link STATUS_MS} until the connection has ended. */
  private async watchStatus(closed: Promise<void>): Promise<void> {
    const connection = new AbortController();
    void closed.then(() => connection.abort());
    while (!connection.signal.aborted) {
      await sleep(this.options.clock, STATUS_MS, connection.signal).catch(() => undefined);
      if (!connection.signal.aborted)
        this.noteStatus(await this.ask({ type: 'status' }, ANSWER_MS));
    }
  }

  private noteStatus(response: ControlResponse | undefined): void {
    const nowMs = this.options.clock.now();
    if (response?.type !== 'status') return this.problems.noteSilence(nowMs);
    this.meshAddress = response.status.meshAddress;
    this.problems.noteStatus(response.status, nowMs);
  }

  /**
   * Replaces a proxy of another version or with other settings, and brings the others up to date.
   * @returns True when the proxy was replaced: connect again.
   */
  private async align(
    client: ControlClient,
    { version, settings }: Extract<ControlResponse, { type: 'hello' }>,
  ): Promise<boolean> {
    const { proxyCommand, log } = this.options;
    const own = this.options.settings;
    const isCurrent =
      version === VERSION &&
      isDeepStrictEqual(withoutCluster(settings), withoutCluster(toPlain(own)));
    if (isCurrent) {
      await client.request({ type: 'reload' });
      return false;
    }
    try {
      await client.request({ type: 'upgrade', command: proxyCommand });
      log.info('network proxy replaced', { earlierVersion: version });
      return true;
    } catch (reason) {
      log.warn('network proxy not replaced: the earlier one continues', errorFields(reason));
      return false;
    }
  }

  private async askServices(
    namespace: string,
    withinMs: number,
  ): Promise<ServiceAccess | undefined> {
    const response = await this.ask({ type: 'services', namespace }, withinMs);
    return response?.type === 'services' ? response.access : undefined;
  }

  /** The DNS server does not depend on the namespace. */
  private findKnownDns(): ServiceAccess | undefined {
    const [any] = this.known.values();
    return any?.dns === undefined ? undefined : { dns: any.dns, services: [] };
  }

  private async ask(
    request: Parameters<ControlClient['request']>[0],
    withinMs: number,
  ): Promise<Awaited<ReturnType<ControlClient['request']>> | undefined> {
    const { client } = this;
    if (client === undefined) return undefined;
    return new Promise((resolve) => {
      const timer = this.options.clock.setTimer(Math.max(0, withinMs), () => resolve(undefined));
      client.request(request).then(
        (response) => {
          timer.cancel();
          resolve(response);
        },
        () => {
          timer.cancel();
          resolve(undefined);
        },
      );
    });
  }
}

/** The settings for which a proxy is replaced: a reload changes the others. */
function withoutCluster(settings: ProxySettings): Omit<ProxySettings, 'clusterId'> {
  const { clusterId: _, ...others } = settings;
  return { ...others, coordinators: [] };
}

/** Settings as they are after a trip through JSON. */
function toPlain(settings: ProxySettings): ProxySettings {
  return JSON.parse(JSON.stringify(settings)) as ProxySettings;
}
