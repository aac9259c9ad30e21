import { randomBytes } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ConnectError, type Code } from '@connectrpc/connect';
import { NodeStatus_Phase, type CoordinatorClient } from '@cloudless/api';
import { Machines, findBundle, findLeader, type Machine, type SecureClients } from '@cloudless/e2e';
import { requireItem } from '../require-item.js';
import { retry, RETRY_MS } from '../retry.js';
import { AgentMachine } from './agent-machine.js';
import { CoordinatorMachine } from './coordinator-machine.js';
import { EtcdMember, findEtcdLeader } from './etcd-member.js';
import { SmallDisk } from './small-disk.js';

/** Address of this process on the switch. */
const TEST_ADDRESS = '10.88.0.1';
/** Size of the disk of the last etcd member: space for its log segments of 64 MB and its data. */
const SMALL_DISK_MIB = 256;
/** Deadline of one attempt of a call, milliseconds. */
const ATTEMPT_MS = 2_000;
const ZONES = ['zone-a', 'zone-b', 'zone-c'];

/** How many programs of each kind a world has. */
export interface WorldSize {
  readonly members: number;
  readonly coordinators: number;
  readonly agents: number;
  /** Zone and further flags of an agent, by the name and address of its machine. */
  readonly describeAgent?: (machine: Machine) => {
    readonly zone: string;
    readonly flags: readonly string[];
  };
}

/** A highly available cluster of real processes, each on a machine of its own. */
export class World {
  readonly members: EtcdMember[] = [];
  readonly coordinators: CoordinatorMachine[] = [];
  readonly agents: AgentMachine[] = [];
  /** The disk of the last etcd member. */
  disk: SmallDisk | undefined;
  /** Token of the first administrator. Secret. */
  token = '';
  private readonly clients = new Map<CoordinatorMachine, SecureClients>();

  private constructor(readonly machines: Machines) {}

  /** Creates the network. The caller must call {@link World.stop}. */
  static async create(): Promise<World> {
    const world = new World(await Machines.create());
    world.machines.connectThisProcess(TEST_ADDRESS);
    return world;
  }

  /** Starts all programs, and waits until each node is ready. */
  async start(size: WorldSize): Promise<void> {
    await this.startMembers(size.members);
    await this.startCoordinators(size.coordinators);
    await this.startAgents(size);
  }

  /** Directory that every machine shares. */
  get directory(): string {
    return this.machines.directory;
  }

  /** File with the token of the first administrator, on the machine of the first coordinator. */
  get tokenFile(): string {
    return join(requireItem(this.coordinators[0]).identityDir, 'admin.credential');
  }

  /** Environment in which cloudlessctl uses this cluster after its login. */
  get ctlEnv(): NodeJS.ProcessEnv {
    return { CLOUDLESS_CONFIG: join(this.directory, 'ctl', 'config.yaml'), NO_COLOR: '1' };
  }

  /** The machines of the coordinators. */
  get coordinatorMachines(): readonly Machine[] {
    return this.coordinators.map(({ machine }) => machine);
  }

  /** The last etcd member, which has the small disk. */
  get memberOnSmallDisk(): EtcdMember {
    return requireItem(this.members.at(-1));
  }

  /** Returns the machine of a node. */
  requireAgent(nodeId: string): AgentMachine {
    return requireItem(this.agents.find(({ name }) => name === nodeId));
  }

  /** Returns the etcd member that leads; waits until there is one. */
  async requireEtcdLeader(): Promise<EtcdMember> {
    for (;;) {
      const leader = await findEtcdLeader(this.members);
      if (leader !== undefined) return leader;
      await pause(RETRY_MS);
    }
  }

  /** Returns the coordinator that leads, as the logs say; waits until there is one. */
  async requireLeader(): Promise<CoordinatorMachine> {
    for (;;) {
      const leader = findLeader(this.coordinators);
      if (leader !== undefined) return leader;
      await pause(RETRY_MS);
    }
  }

  /** Returns the running coordinators that do not lead. */
  async listFollowers(): Promise<readonly CoordinatorMachine[]> {
    const leader = await this.requireLeader();
    return this.coordinators.filter((each) => each !== leader && each.isRunning);
  }

  /**
   * Calls one coordinator after the other until a call succeeds.
   * @param withinMs - Time limit; then the newest error is thrown.
   */
  async call<Result>(
    send: (client: CoordinatorClient, options: { readonly timeoutMs: number }) => Promise<Result>,
    withinMs: number,
  ): Promise<Result> {
    return retry(withinMs, async (attempt) => {
      const running = [...this.clients].filter(([{ isRunning }]) => isRunning);
      const [, clients] = requireItem(running[attempt % Math.max(1, running.length)]);
      return send(clients.coordinator, { timeoutMs: ATTEMPT_MS });
    });
  }

  /**
   * Calls the coordinator that leads until a call succeeds.
   * @param withinMs - Time limit; then the newest error is thrown.
   */
  async callLeader<Result>(
    send: (client: CoordinatorClient, options: { readonly timeoutMs: number }) => Promise<Result>,
    withinMs: number,
  ): Promise<Result> {
    return retry(withinMs, async () => {
      const leader = findLeader(this.coordinators);
      const clients = leader === undefined ? undefined : this.clients.get(leader);
      if (clients === undefined) throw new Error('no coordinator leads');
      return send(clients.coordinator, { timeoutMs: ATTEMPT_MS });
    });
  }

  /**
   * Sends a call once to each coordinator that runs.
   * @returns The code of each failure, and the time until then in milliseconds.
   */
  async sendOnce<Result>(
    send: (client: CoordinatorClient, options: { readonly timeoutMs: number }) => Promise<Result>,
    timeoutMs: number,
  ): Promise<readonly { readonly code: Code | undefined; readonly tookMs: number }[]> {
    const running = [...this.clients].filter(([{ isRunning }]) => isRunning);
    return Promise.all(
      running.map(async ([, { coordinator }]) => {
        const beganMs = performance.now();
        const code = await send(coordinator, { timeoutMs }).then(
          () => undefined,
          (reason: unknown) => ConnectError.from(reason).code,
        );
        return { code, tookMs: performance.now() - beganMs };
      }),
    );
  }

  /**
   * Waits until the leader has a session with every node. Only the leader knows its sessions: after
   * the loss of a leader, followers serve the last known status of the nodes for some time.
   */
  async waitUntilNodesReady(withinMs: number): Promise<void> {
    await this.callLeader(async (client, options) => {
      const { nodes } = await client.listNodes({}, options);
      const ready = nodes.filter(({ status }) => status?.phase === NodeStatus_Phase.READY);
      if (ready.length < this.agents.length)
        throw new Error(`${ready.length} of ${this.agents.length} nodes are ready`);
    }, withinMs);
  }

  /** Drops packets both ways between a machine and others. */
  isolate(machine: Machine, others: readonly Machine[]): void {
    for (const other of others) {
      this.machines.cut(machine, other);
      this.machines.cut(other, machine);
    }
  }

  /** Starts a coordinator, and waits until it serves. */
  async restartCoordinator(coordinator: CoordinatorMachine, bundle?: string): Promise<void> {
    coordinator.start(bundle);
    await coordinator.waitUntilReady();
  }

  /** Starts every program that does not run, ends every cut, wakes every program that sleeps. */
  async heal(): Promise<void> {
    this.machines.healCuts();
    this.disk?.free();
    const all = [...this.members, ...this.coordinators, ...this.agents];
    for (const each of all) await each.kill('SIGCONT');
    for (const member of this.members) if (!member.isRunning) member.start(this.members);
    for (const each of this.coordinators) if (!each.isRunning) each.start();
    for (const agent of this.agents) if (!agent.isRunning) agent.start();
    await Promise.all(this.coordinators.map((each) => each.waitUntilReady()));
  }

  /** Writes the output of every program to a directory. */
  writeLogs(directory: string): void {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    for (const each of [...this.members, ...this.coordinators, ...this.agents])
      writeFileSync(join(directory, `${each.name}.log`), `${each.lines.join('\n')}\n`);
  }

  /** Ends all programs, and removes machines and files. */
  async stop(): Promise<void> {
    for (const coordinator of this.coordinators) coordinator.closeClients();
    this.machines.healCuts();
    for (const each of [...this.coordinators, ...this.agents, ...this.members])
      await each.kill('SIGKILL');
    this.disk?.unmount();
    await this.machines.remove();
  }

  private async startMembers(count: number): Promise<void> {
    for (let index = 1; index <= count; index += 1) {
      const machine = await this.machines.add(`e${index}`, `10.88.0.${20 + index}`);
      let dataDir = machine.home;
      if (index === count && count > 1) {
        dataDir = join(machine.home, 'disk');
        this.disk = SmallDisk.mount(dataDir, SMALL_DISK_MIB);
      }
      this.members.push(new EtcdMember(machine, dataDir));
    }
    for (const member of this.members) member.start(this.members);
    await this.requireEtcdLeader();
  }

  private async startCoordinators(count: number): Promise<void> {
    const settings = {
      etcdUrls: this.members.map(({ clientUrl }) => clientUrl),
      bundle: findBundle('coordinator'),
    };
    for (let index = 1; index <= count; index += 1) {
      const machine = await this.machines.add(`c${index}`, `10.88.0.${10 + index}`);
      this.coordinators.push(new CoordinatorMachine(machine, settings));
    }
    const [first, ...others] = this.coordinators;
    createSecretsKey(requireItem(first));
    await this.restartCoordinator(requireItem(first));
    // written when the first coordinator leads
    while (!existsSync(this.tokenFile)) await pause(RETRY_MS);
    this.token = readFileSync(this.tokenFile, 'utf8').trim();
    for (const other of others) {
      mkdirSync(join(other.identityDir, '..'), { mode: 0o700 });
      cpSync(requireItem(first).identityDir, other.identityDir, { recursive: true });
      other.start();
    }
    for (const coordinator of this.coordinators) {
      await coordinator.waitUntilReady();
      this.clients.set(coordinator, await coordinator.openClients(this.token));
    }
  }

  private async startAgents({ agents, describeAgent }: WorldSize): Promise<void> {
    const [admin] = this.clients.values();
    const { text } = await requireItem(admin).identities.createJoinToken({ maxUses: agents });
    const file = join(this.directory, 'join-token');
    writeFileSync(file, `${text}\n`, { mode: 0o600 });
    const urls = this.coordinators.map(({ url }) => url);
    for (let index = 1; index <= agents; index += 1) {
      const machine = await this.machines.add(`a${index}`, `10.88.0.${30 + index}`);
      const settings = describeAgent?.(machine);
      const zone = settings?.zone ?? ZONES[index % ZONES.length] ?? '';
      const agent = new AgentMachine(machine, zone, urls, file, settings?.flags);
      this.agents.push(agent);
      agent.start();
    }
    await this.waitUntilNodesReady(START_MS);
  }
}

/** Time in which all nodes become ready at the start, milliseconds. */
const START_MS = 60_000;

/** Creates the key-encryption key, which coordinators with a common store do not create. */
function createSecretsKey({ identityDir }: CoordinatorMachine): void {
  mkdirSync(identityDir, { recursive: true, mode: 0o700 });
  writeFileSync(join(identityDir, 'secrets-key'), randomBytes(32).toString('hex'), { mode: 0o600 });
}
