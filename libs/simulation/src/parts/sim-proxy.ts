import type { NetworkUpdate, NodeNetworkClient } from '@cloudless/api';
import { readLeaderHint } from '@cloudless/api';
import type { Clock, Log } from '@cloudless/base';
import { NetworkModel, ServiceTable, ZoneFeed, followNetwork } from '@cloudless/mesh';
import type { ServingCoordinator } from './serving-coordinator.js';
import type { SimLink } from './sim-link.js';
import { dial } from './sim-network.js';
import { SimProcess, type Drift } from './sim-process.js';
import type { SimRandom } from './sim-random.js';

/** Time after which a connect is given up, milliseconds. */
const CONNECT_MS = 2_000;

export interface SimProxyOptions {
  readonly nodeId: string;
  readonly zone: string;
  readonly time: Clock;
  readonly drift: Drift;
  /** The network of the node. */
  readonly link: SimLink;
  readonly random: SimRandom;
  readonly log: Log;
  /** URLs of the coordinators. */
  readonly addresses: readonly string[];
  /** Returns the coordinator that accepts connections at an address, if any. */
  readonly coordinator: (address: string) => ServingCoordinator | undefined;
  /** Called after each update that the proxy has applied. */
  readonly onApplied: (proxy: SimProxy, update: NetworkUpdate) => void;
  /** Replaces what a proxy receives, to inject a bug. Undefined: the update is lost. */
  readonly wrapUpdate?: ((update: NetworkUpdate) => NetworkUpdate | undefined) | undefined;
}

/** An open stream to a coordinator that has delivered a complete update. */
export interface ProxyStream {
  readonly address: string;
  /** Time of the world at which the proxy had applied everything for the first time. */
  readonly since: number;
}

/** The data of one process of a proxy. */
interface ProxyState {
  readonly model: NetworkModel;
  readonly table: ServiceTable;
  readonly zone: ZoneFeed;
}

/**
 * The network proxy of a node without its connections: the real parts that follow the coordinator,
 * choose endpoints and answer names, over the simulated network of the node. The process outlives
 * those of the agent.
 */
export class SimProxy {
  /** Time of the world at which the process last started or resumed. */
  activeSince = 0;
  private process: SimProcess | undefined;
  private state: ProxyState;
  private snapshot: Uint8Array | undefined;
  private incarnation = 0;
  private openStream: ProxyStream | undefined;
  private leaderAddress: string | undefined;

  constructor(private readonly options: SimProxyOptions) {
    this.state = this.createState();
  }

  get nodeId(): string {
    return this.options.nodeId;
  }

  get link(): SimLink {
    return this.options.link;
  }

  /** View that the proxy has of the network. */
  get model(): NetworkModel {
    return this.state.model;
  }

  /** Names and their answers; undefined before the settings of the cluster are known. */
  get zone(): ZoneFeed['zone'] {
    return this.state.zone.zone;
  }

  get isRunning(): boolean {
    return this.process?.isRunning === true;
  }

  get isDead(): boolean {
    return this.process?.isDead !== false;
  }

  /** The open stream, as the proxy knows. */
  get stream(): ProxyStream | undefined {
    return this.isDead ? undefined : this.openStream;
  }

  /** Returns true when new connections to a service may go to an endpoint, an id of the model. */
  chooses(endpointId: string): boolean {
    const endpoint = this.state.model.endpoints.get(endpointId);
    if (this.isDead || endpoint === undefined) return false;
    const key = `${endpoint.namespace}/${endpoint.service}`;
    return endpoint.ports.some(({ name }) => {
      const target = this.state.table.port(key, name)?.target(endpointId);
      return target?.isReady === true && target.endpoint.weight > 0;
    });
  }

  /** Starts a process, with the data that the last one saved. Does nothing while one exists. */
  start(): void {
    if (!this.isDead) return;
    const { options, snapshot } = this;
    const { nodeId, time, drift, random, log } = options;
    const process = new SimProcess(`${nodeId}-proxy#${(this.incarnation += 1)}`, time, drift);
    this.process = process;
    this.activeSince = time.now();
    this.openStream = undefined;
    const state = (this.state = this.createState());
    if (snapshot !== undefined) this.follow(state, () => state.model.load(snapshot), true);
    void followNetwork({
      nodeId,
      connect: () => this.connect(process),
      clock: process.clock,
      random: random.toPlainRandom(),
      log,
      resume: () => state.model.resume,
      apply: (update) => this.apply(state, update),
      onConnected: (connection) => {
        if (connection === undefined) this.openStream = undefined;
      },
      signal: new AbortController().signal,
    });
  }

  /** Ends the process. Some processes leave a snapshot of their data for the next. */
  kill(): void {
    if (this.isDead) return;
    if (this.options.random.chance(0.5)) this.snapshot = this.state.model.save();
    this.process?.kill();
  }

  pause(): void {
    this.process?.pause();
  }

  resume(): void {
    if (this.isDead || this.isRunning) return;
    this.activeSince = this.options.time.now();
    this.process?.resume();
  }

  private createState(): ProxyState {
    const { nodeId, zone, random } = this.options;
    const model = new NetworkModel();
    const isLocal = (id: string): boolean => id === nodeId;
    const here = { nodeId, zone, region: 'r1' };
    return {
      model,
      table: new ServiceTable(model, here, random.toPlainRandom(), isLocal),
      zone: new ZoneFeed(model, isLocal),
    };
  }

  private async connect(process: SimProcess) {
    const { time, link, coordinator, addresses, random } = this.options;
    const address = this.leaderAddress ?? random.pick(addresses) ?? '';
    this.leaderAddress = undefined;
    const giveUp = new AbortController();
    const timer = process.clock.setTimer(CONNECT_MS, () => giveUp.abort());
    const onMessage = (): void => undefined;
    const linkTo = (to: string): SimLink => link.to(to);
    const ends = { time, linkTo, agent: process, coordinator, onMessage };
    const connection = await dial(ends, address, giveUp.signal).finally(() => timer.cancel());
    this.openStream = undefined;
    const readUpdates = async function* (
      this: SimProxy,
      reports: Parameters<typeof connection.syncNetwork>[0],
    ): AsyncGenerator<NetworkUpdate> {
      try {
        for await (const update of connection.syncNetwork(reports)) {
          yield update;
          if (update.complete) this.openStream ??= { address, since: time.now() };
        }
      } catch (reason) {
        this.leaderAddress = readLeaderHint(reason)?.address;
        throw reason;
      }
    };
    return {
      client: { syncNetwork: readUpdates.bind(this) } as unknown as NodeNetworkClient,
      reportHealth: () => Promise.resolve(),
      close: () => connection.close(),
    };
  }

  private apply(state: ProxyState, received: NetworkUpdate): bigint {
    const { wrapUpdate = (update) => update, onApplied } = this.options;
    const update = wrapUpdate(received);
    if (update === undefined) return received.revision;
    this.follow(state, () => state.model.apply(update), update.complete);
    onApplied(this, update);
    return state.model.revision;
  }

  private follow(
    { table, zone }: ProxyState,
    change: () => ReturnType<NetworkModel['apply']>,
    isComplete: boolean,
  ): void {
    const changes = change();
    table.apply(changes);
    zone.apply(changes, isComplete);
  }
}
