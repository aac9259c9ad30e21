import { sleep } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { DAEMON_ADDRESS, DockerDaemon } from './docker-daemon.js';
import {
  COMMAND,
  GRACE_MS,
  IMAGES,
  KILLS,
  UPDATE_PARALLELISM,
  type Figures,
  type NetworkKind,
  type Side,
} from './real-start-terms.js';

const NANOS_PER_MS = 1_000_000;
/** Interval of the checks of a wait, milliseconds. */
const POLL_MS = 10;
/** Time limit of a wait, milliseconds. */
const WAIT_LIMIT_MS = 600_000;

/** The fields of `GET /tasks` that the benchmark reads. */
interface Task {
  readonly ID: string;
  readonly Slot: number;
  readonly DesiredState: string;
  readonly Spec: { readonly ContainerSpec: { readonly Image: string } };
  readonly Status: { readonly State: string; readonly ContainerStatus?: { readonly PID: number } };
}

/**
 * `swarm`: no restart delay, no monitoring, and the parallelism of the other sides, on the Docker
 * bridge. `swarmOverlay`: the same on an overlay network. `swarmDefaults`: the defaults of `docker
 * service create`: 5 s restart delay, 5 s monitoring, one task updated at a time.
 */
export type SwarmKind = 'swarm' | 'swarmOverlay' | 'swarmDefaults';

/**
 * Docker Swarm on one node, with the API calls that `docker service create --detach` and similar
 * commands make.
 */
export class Swarm {
  private constructor(
    readonly daemon: DockerDaemon,
    readonly imageIds: readonly [string, string],
  ) {}

  /**
   * Starts a swarm. The caller closes it.
   * @param registry - host:port of the registry with the images.
   */
  static async start(registry: string): Promise<Swarm> {
    const daemon = await DockerDaemon.start();
    try {
      await daemon.callApi('POST', '/swarm/init', {
        ListenAddr: `${DAEMON_ADDRESS}:2377`,
        AdvertiseAddr: DAEMON_ADDRESS,
      });
      const overlay = {
        Name: OVERLAY,
        Driver: 'overlay',
        IPAM: { Config: [{ Subnet: OVERLAY_SUBNET }] },
      };
      await daemon.callApi('POST', '/networks/create', overlay);
      const [first, second] = IMAGES;
      return new Swarm(daemon, [
        await daemon.pullImage(`${registry}/${first}`, first),
        await daemon.pullImage(`${registry}/${second}`, second),
      ]);
    } catch (reason) {
      await daemon.stop();
      throw reason;
    }
  }

  async readVersion(): Promise<string> {
    const { Version } = await this.daemon.callApi<{ readonly Version: string }>('GET', '/version');
    return Version;
  }

  createSide(kind: SwarmKind): Side {
    return {
      name: kind,
      measure: (count, network) => new ServiceRun(this, kind, network, count).measure(),
      close: async () => undefined,
    };
  }

  async close(): Promise<void> {
    try {
      await this.daemon.callApi('POST', '/swarm/leave?force=1');
    } finally {
      await this.daemon.stop();
    }
  }
}

const OVERLAY = 'bench';
/** Address range with enough addresses for 200 tasks and their successors. */
const OVERLAY_SUBNET = '10.239.0.0/16';

/** Measures the life cycle of one service. */
class ServiceRun {
  private readonly watching = new AbortController();
  private starts = 0;
  private removals = 0;
  private id = '';

  constructor(
    private readonly swarm: Swarm,
    private readonly kind: SwarmKind,
    private readonly network: NetworkKind,
    private readonly count: number,
  ) {}

  async measure(): Promise<Figures> {
    const { daemon } = this.swarm;
    await daemon.watchEvents(({ Action }) => {
      if (Action === 'start') this.starts += 1;
      else this.removals += 1;
    }, this.watching.signal);
    try {
      const createMs = await this.create();
      const updateMs = await this.update();
      const recoverMs: number[] = [];
      for (let kill = 0; kill < Math.min(KILLS, this.count); kill += 1)
        recoverMs.push(await this.measureRecovery(kill));
      const removeMs = await this.remove();
      return { createMs, updateMs, recoverMs, removeMs };
    } finally {
      if (this.id !== '')
        await daemon.callApi('DELETE', `/services/${this.id}`).catch(() => undefined);
      this.watching.abort();
    }
  }

  private async create(): Promise<number> {
    const startedAt = systemClock.now();
    const { ID } = await this.swarm.daemon.callApi<{ readonly ID: string }>(
      'POST',
      '/services/create',
      this.createSpec(0),
    );
    this.id = ID;
    return (await this.waitUntilAllRun(this.count, 0)) - startedAt;
  }

  private async update(): Promise<number> {
    const { daemon } = this.swarm;
    const { Version } = await daemon.callApi<{ readonly Version: { readonly Index: number } }>(
      'GET',
      `/services/${this.id}`,
    );
    const until = this.starts + this.count;
    const startedAt = systemClock.now();
    await daemon.callApi(
      'POST',
      `/services/${this.id}/update?version=${Version.Index}`,
      this.createSpec(1),
    );
    return (await this.waitUntilAllRun(until, 1)) - startedAt;
  }

  private async measureRecovery(index: number): Promise<number> {
    const victim = (await this.listDesiredTasks()).sort((a, b) => a.Slot - b.Slot)[index];
    const pid = victim?.Status.ContainerStatus?.PID ?? 0;
    if (pid <= 0) throw new Error('a task of the service does not run');
    const until = this.starts + 1;
    const startedAt = systemClock.now();
    process.kill(pid, 'SIGKILL');
    return (await this.waitUntilAllRun(until, 1, victim?.ID)) - startedAt;
  }

  private async remove(): Promise<number> {
    const { daemon } = this.swarm;
    const filters = encodeURIComponent(
      JSON.stringify({ label: [`com.docker.swarm.service.id=${this.id}`] }),
    );
    const listContainers = (): Promise<readonly unknown[]> =>
      daemon.callApi('GET', `/containers/json?all=1&filters=${filters}`);
    const until = this.removals + (await listContainers()).length;
    const startedAt = systemClock.now();
    await daemon.callApi('DELETE', `/services/${this.id}`);
    this.id = '';
    return (
      (await this.pollUntil(
        () => this.removals >= until,
        async () => (await listContainers()).length === 0,
      )) - startedAt
    );
  }

  /**
   * Waits until the desired number of tasks runs the image.
   * @param starts - Number of container starts before which the daemon is not queried.
   * @param image - Index of the image.
   * @param without - Id of a task that must have been replaced.
   * @returns The time, milliseconds of the system clock.
   */
  private waitUntilAllRun(starts: number, image: 0 | 1, without?: string): Promise<number> {
    const wantedImage = this.swarm.imageIds[image];
    return this.pollUntil(
      () => this.starts >= starts,
      async () => {
        const tasks = await this.listDesiredTasks();
        const running = tasks.filter(({ ID, Status, Spec }) => {
          return (
            Status.State === 'running' && Spec.ContainerSpec.Image === wantedImage && ID !== without
          );
        });
        return tasks.length === this.count && running.length === this.count;
      },
    );
  }

  private listDesiredTasks(): Promise<Task[]> {
    const filters = encodeURIComponent(
      JSON.stringify({ service: [this.id], 'desired-state': ['running'] }),
    );
    return this.swarm.daemon.callApi('GET', `/tasks?filters=${filters}`);
  }

  /**
   * Polls until a condition holds.
   * @param precheck - A local check. `holds` queries the daemon only when `precheck` returns true.
   * @returns The time, milliseconds of the system clock.
   */
  private async pollUntil(precheck: () => boolean, holds: () => Promise<boolean>): Promise<number> {
    const deadline = systemClock.now() + WAIT_LIMIT_MS;
    while (!precheck() || !(await holds())) {
      if (systemClock.now() > deadline)
        throw new Error(`Docker Swarm did not finish within ${WAIT_LIMIT_MS / 1_000} s`);
      await sleep(systemClock, POLL_MS);
    }
    return systemClock.now();
  }

  /** The image is given by its id, so that Docker neither pulls it nor queries a registry. */
  private createSpec(image: 0 | 1): unknown {
    const quick = this.kind !== 'swarmDefaults';
    const network =
      this.network === 'host' ? 'host' : this.kind === 'swarmOverlay' ? OVERLAY : undefined;
    return {
      Name: 'bench',
      TaskTemplate: {
        ContainerSpec: {
          Image: this.swarm.imageIds[image],
          Command: COMMAND,
          StopGracePeriod: GRACE_MS * NANOS_PER_MS,
        },
        RestartPolicy: { Condition: 'any', ...(quick ? { Delay: 0 } : {}) },
        ...(network === undefined ? {} : { Networks: [{ Target: network }] }),
      },
      Mode: { Replicated: { Replicas: this.count } },
      // 1 ns in place of 0 s, because zero is omitted in JSON and means the default.
      ...(quick
        ? { UpdateConfig: { Parallelism: UPDATE_PARALLELISM, Monitor: 1, Order: 'stop-first' } }
        : {}),
      EndpointSpec: { Mode: 'vip' },
    };
  }
}
