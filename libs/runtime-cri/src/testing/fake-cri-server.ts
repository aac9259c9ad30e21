import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type ConnectRouter, type ServiceImpl } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { definedFields } from '@cloudless/base';
import {
  ContainerSchema,
  ContainerState,
  type ContainerStatusSchema,
  ImageService,
  type ImageSchema,
  PodSandboxSchema,
  RuntimeService,
  type Container,
  type ContainerConfig,
  type PodSandbox,
  type PodSandboxConfig,
} from '../gen/runtime/v1/api_pb.js';

/** A container of the fake runtime. */
export interface FakeContainer {
  readonly id: string;
  readonly podSandboxId: string;
  readonly config: ContainerConfig;
  state: ContainerState;
  createdAt: bigint;
  /** 0 before the container is started; absent for a container that was started long ago. */
  startedAt?: bigint;
  finishedAt: bigint;
  exitCode: number;
  reason: string;
  /** Process id; 0 while the container does not run. */
  pid: number;
}

type Calls = Partial<ServiceImpl<typeof RuntimeService>>;
type ImageCalls = Partial<ServiceImpl<typeof ImageService>>;

/**
 * A container runtime in memory behind a real Unix socket. No container really runs; tests control
 * all changes of their states. Every sandbox has the address 10.0.0.7. The main process of a
 * started container is the process of the test.
 */
export class FakeCriServer {
  /** Absolute path of the temporary directory of this server, removed by `dispose`. */
  readonly directory = mkdtempSync(path.join(tmpdir(), 'cloudless-fake-cri-'));
  readonly socketPath = path.join(this.directory, 'cri.sock');
  readonly logDirectory = path.join(this.directory, 'logs');
  readonly sandboxes = new Map<
    string,
    { readonly config: PodSandboxConfig; readonly createdAt: bigint }
  >();
  /** Containers by their id in the runtime. */
  readonly containers = new Map<string, FakeContainer>();
  /** Names of the present images. The id of an image is `sha256:<name>`. */
  readonly images = new Set<string>();
  /** Reported conditions of the runtime by type; by default all are true. */
  readonly conditions = new Map(
    ['RuntimeReady', 'NetworkReady'].map((type) => [
      type,
      { type, status: true, reason: '', message: '' },
    ]),
  );
  /** Reported configuration of the runtime. */
  config: object = { containerd: { runtimes: { runc: {} } } };
  /** Users of images by the name of the image. */
  readonly imageUsers = new Map<
    string,
    Pick<MessageInitShape<typeof ImageSchema>, 'uid' | 'username'>
  >();
  /** Requested runtime handlers (runtime classes), in the order of the sandboxes. */
  readonly handlers: string[] = [];
  /**
   * Delays the status of a container, by its id in the runtime: the fake answers when the promise
   * resolves, and fails when it rejects.
   */
  readonly statusGates = new Map<string, Promise<void>>();
  /** Names of all received calls, in order. */
  readonly calls: string[] = [];
  /** Replacements for calls, by name. They take effect at the next {@link FakeCriServer.listen}. */
  readonly overrides: Calls = {};
  /** Like `overrides`, for calls about images. */
  readonly imageOverrides: ImageCalls = {};
  private readonly sessions = new Set<ServerHttp2Session>();
  private readonly eventListeners = new Set<() => void>();
  private server: Http2Server | undefined;
  private idCount = 0;

  /** Accepts connections, also again after {@link FakeCriServer.disconnect}. The state is kept. */
  async listen(): Promise<void> {
    const server = (this.server = createServer(
      connectNodeAdapter({ routes: (router) => this.registerRoutes(router) }),
    ));
    server.on('session', (session) => {
      this.sessions.add(session);
      session.once('close', () => this.sessions.delete(session));
    });
    await new Promise<void>((resolve) => server.listen(this.socketPath, resolve));
  }

  /** Waits until no client has a connection. */
  async waitUntilDisconnected(): Promise<void> {
    await Promise.all(
      [...this.sessions].map((session) => new Promise((resolve) => session.once('close', resolve))),
    );
  }

  /** Closes all connections and stops listening. */
  async disconnect(): Promise<void> {
    for (const session of this.sessions) session.destroy();
    await new Promise<void>((resolve) =>
      this.server === undefined ? resolve() : this.server.close(() => resolve()),
    );
    this.server = undefined;
    rmSync(this.socketPath, { force: true });
  }

  async dispose(): Promise<void> {
    await this.disconnect();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /**
   * Adds a sandbox.
   * @param createdAt - Wall-clock nanoseconds. Default: now.
   * @returns The id of the sandbox.
   */
  addSandbox(config: PodSandboxConfig, createdAt = nowNanos()): string {
    const id = `sandbox-${(this.idCount += 1)}`;
    this.sandboxes.set(id, { config, createdAt });
    return id;
  }

  /** Ends a container and reports the end to readers of events. */
  exitContainer(
    container: FakeContainer,
    exitCode: number,
    reason = exitCode === 0 ? 'Completed' : 'Error',
  ): void {
    Object.assign(container, {
      state: ContainerState.CONTAINER_EXITED,
      finishedAt: nowNanos(),
      exitCode,
      reason,
      pid: 0,
    });
    for (const listener of this.eventListeners) listener();
  }

  /** The container that was added first. Use it in tests with one container. */
  get onlyContainer(): FakeContainer {
    const [first] = this.containers.values();
    if (first === undefined) throw new Error('there is no container');
    return first;
  }

  /** Writes text, in the log format of the interface, to the log file of a container. */
  writeLog(container: FakeContainer, text: string, flag = 'a'): void {
    const directory = this.sandboxes.get(container.podSandboxId)?.config.logDirectory ?? '';
    mkdirSync(directory, { recursive: true });
    writeFileSync(path.join(directory, container.config.logPath), text, { flag });
  }

  private registerRoutes(router: ConnectRouter): void {
    router.service(
      RuntimeService,
      this.recordCalls({ ...this.createRuntimeCalls(), ...this.overrides }),
    );
    router.service(
      ImageService,
      this.recordCalls({ ...this.createImageCalls(), ...this.imageOverrides }),
    );
  }

  private recordCalls<Service extends object>(calls: Service): Service {
    const entries = Object.entries(calls) as [string, (...args: unknown[]) => unknown][];
    return Object.fromEntries(
      entries.map(([name, call]) => [
        name,
        (...args: unknown[]) => {
          this.calls.push(name);
          return call(...args);
        },
      ]),
    ) as Service;
  }

  private createImageCalls(): ImageCalls {
    return {
      imageStatus: ({ image }) => {
        const name = (image?.image ?? '').replace(/^sha256:/, '');
        return this.images.has(name) ? { image: this.toImage(name) } : {};
      },
      listImages: () => ({ images: [...this.images].map((name) => this.toImage(name)) }),
      removeImage: ({ image }) => {
        this.images.delete((image?.image ?? '').replace(/^sha256:/, ''));
        return {};
      },
      imageFsInfo: () => ({ imageFilesystems: [{ fsId: { mountpoint: this.directory } }] }),
      pullImage: ({ image }) => {
        this.images.add(image?.image ?? '');
        return { imageRef: `sha256:${image?.image}` };
      },
    };
  }

  private toImage(name: string): MessageInitShape<typeof ImageSchema> {
    return { id: `sha256:${name}`, repoTags: [name], size: 10n, ...this.imageUsers.get(name) };
  }

  private createRuntimeCalls(): Calls {
    return {
      version: () => ({
        version: '0.1.0',
        runtimeName: 'fake',
        runtimeVersion: '1.0',
        runtimeApiVersion: 'v1',
      }),
      status: () => ({
        status: { conditions: [...this.conditions.values()] },
        info: { config: JSON.stringify(this.config) },
      }),
      runPodSandbox: ({ config, runtimeHandler }) => {
        const name = requireField(config?.metadata).name;
        const taken = [...this.sandboxes].find(
          ([, each]) => each.config.metadata?.name === name,
        )?.[0];
        if (taken !== undefined)
          throw new ConnectError(`sandbox name "${name}" is reserved for "${taken}"`, Code.Unknown);
        this.handlers.push(runtimeHandler);
        return { podSandboxId: this.addSandbox(requireField(config)) };
      },
      stopPodSandbox: () => ({}),
      removePodSandbox: ({ podSandboxId }) => {
        this.sandboxes.delete(podSandboxId);
        for (const { id, podSandboxId: sandboxId } of this.containers.values())
          if (sandboxId === podSandboxId) this.containers.delete(id);
        return {};
      },
      podSandboxStatus: ({ podSandboxId }) => ({
        status: { id: podSandboxId, network: { ip: '10.0.0.7' } },
      }),
      // Ignores the filter: the runtime under test must check owners itself.
      listPodSandbox: () => ({
        items: [...this.sandboxes].map(([id, each]) => toSandbox(id, each)),
      }),
      listContainers: () => ({ containers: [...this.containers.values()].map(toContainer) }),
      createContainer: ({ podSandboxId, config }) => ({
        containerId: this.createContainer(podSandboxId, requireField(config)),
      }),
      startContainer: ({ containerId }) => {
        const container = this.requireContainer(containerId);
        Object.assign(container, {
          state: ContainerState.CONTAINER_RUNNING,
          startedAt: nowNanos(),
          pid: process.pid,
        });
        return {};
      },
      stopContainer: ({ containerId, timeout }) => {
        if (timeout === 0n) this.exitContainer(this.requireContainer(containerId), 137);
        return {};
      },
      removeContainer: ({ containerId }) => {
        this.containers.delete(containerId);
        return {};
      },
      containerStatus: async ({ containerId }) => {
        await this.statusGates.get(containerId);
        return toStatus(this.requireContainer(containerId));
      },
      reopenContainerLog: ({ containerId }) => {
        this.writeLog(this.requireContainer(containerId), '');
        return {};
      },
      getContainerEvents: async function* (
        this: FakeCriServer,
        _: unknown,
        { signal }: { readonly signal: AbortSignal },
      ) {
        let wake = (): void => undefined;
        const listener = (): void => wake();
        this.eventListeners.add(listener);
        signal.addEventListener('abort', listener);
        while (!signal.aborted) {
          await new Promise<void>((resolve) => (wake = resolve));
          if (!signal.aborted) yield { containerId: 'some' };
        }
      }.bind(this),
    };
  }

  private createContainer(podSandboxId: string, config: ContainerConfig): string {
    const id = `container-${(this.idCount += 1)}`;
    const state = ContainerState.CONTAINER_CREATED;
    this.containers.set(id, {
      id,
      podSandboxId,
      config,
      state,
      createdAt: nowNanos(),
      startedAt: 0n,
      finishedAt: 0n,
      exitCode: 0,
      reason: '',
      pid: 0,
    });
    return id;
  }

  private requireContainer(id: string): FakeContainer {
    const found = this.containers.get(id);
    if (found === undefined) throw new ConnectError(`container ${id} not found`, Code.NotFound);
    return found;
  }
}

function requireField<Value>(value: Value | undefined): Value {
  if (value === undefined) throw new ConnectError('config is missing', Code.InvalidArgument);
  return value;
}

function nowNanos(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}

function toSandbox(
  id: string,
  { config, createdAt }: { readonly config: PodSandboxConfig; readonly createdAt: bigint },
): PodSandbox {
  return create(PodSandboxSchema, {
    id,
    createdAt,
    labels: config.labels,
    annotations: config.annotations,
    ...definedFields({ metadata: config.metadata }),
  });
}

function toContainer({ id, podSandboxId, config, state, createdAt }: FakeContainer): Container {
  return create(ContainerSchema, {
    ...{
      id,
      podSandboxId,
      state,
      createdAt,
      labels: config.labels,
      annotations: config.annotations,
    },
    ...definedFields({ image: config.image }),
  });
}

function toStatus({ id, config, pid, ...rest }: FakeContainer): {
  readonly status: MessageInitShape<typeof ContainerStatusSchema>;
  readonly info: Record<string, string>;
} {
  const { state, createdAt, startedAt = 1n, finishedAt, exitCode, reason } = rest;
  const { labels, annotations } = config;
  return {
    status: { id, state, createdAt, startedAt, finishedAt, exitCode, reason, labels, annotations },
    info: { info: JSON.stringify({ pid }) },
  };
}
