import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { silentLog, type ContainerId, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { systemClock } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { ContainerConfigSchema, ContainerState } from '../gen/runtime/v1/api_pb.js';
import { openCriRuntime } from '../index.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { waitUntil } from '../testing/real-cri-machine.js';
import { aRequest } from '../testing/requests.js';
import { Images } from './images.js';
import { ImageCollector } from './image-collector.js';
import { ImageLedger, addPull } from './image-ledger.js';
import type { PresentImage, PulledImage } from './select-images.js';

const IDLE_MS = 120_000;
const limits = { highPercent: 85, lowPercent: 80, minIdleMs: IDLE_MS };
let server: FakeCriServer;
let client: CriClient;
let clock: ManualClock;
let warnings: string[];
let availableBytes: number;

beforeEach(async () => {
  server = new FakeCriServer();
  await server.listen();
  client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
  clock = new ManualClock();
  warnings = [];
  availableBytes = 0;
});
afterEach(async () => {
  client.close();
  await server.dispose();
});

/** Applies overrides of calls. */
async function restartServer(): Promise<void> {
  client.close();
  await server.disconnect();
  await server.listen();
  client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
}

/** The parts of one agent; all agents share the ledger. */
function createAgent(cluster = 'c1'): {
  readonly images: Images;
  readonly collector: ImageCollector;
  readonly ledger: ImageLedger;
} {
  const log: Log = { ...silentLog, warn: (message) => void warnings.push(message) };
  const readDisk = async (): Promise<{ capacityBytes: number; availableBytes: number }> => ({
    capacityBytes: 100,
    availableBytes,
  });
  const ledger = new ImageLedger({
    directory: path.join(server.home, 'images'),
    socketPath: server.socketPath,
    clock: systemClock,
    log,
  });
  const collector = new ImageCollector({ client, ledger, cluster, limits, readDisk, clock, log });
  return {
    images: new Images({ client, clock, record: () => collector.recordPull() }),
    collector,
    ledger,
  };
}

let made = 0;
async function pull(images: Images, image: string): Promise<void> {
  const containerId = String((made += 1)).padStart(64, '0') as ContainerId;
  const rest = { labels: {}, command: [], args: [], env: {}, ports: [], limits: {} };
  await images.resolve({ containerId, image, imagePull: 'always', ...rest });
  images.release(containerId);
}

function addContainer(image: string): void {
  const config = create(ContainerConfigSchema, { image: { image } });
  const state = ContainerState.CONTAINER_EXITED;
  const rest = { podSandboxId: '', createdAt: 0n, finishedAt: 0n, exitCode: 0, reason: '', pid: 0 };
  server.containers.set('theirs', { id: 'theirs', config, state, ...rest });
}

describe('ImageCollector on a full disk', () => {
  it('removes an unused image that this cluster pulled, but no image that existed before its pull', async () => {
    server.images.add('theirs:1');
    const { images, collector, ledger } = createAgent();
    await pull(images, 'ours:1');
    await pull(images, 'theirs:1');
    await clock.advance(IDLE_MS);
    await collector.collect(images);
    expect([...server.images]).toEqual(['theirs:1']);
    expect(ledger.read()).toEqual([]);
    expect(warnings).toEqual([
      'the disk for images is nearly full, and no more images of this cluster can be removed',
    ]);
  });

  it('keeps an image of any container, even an exited one, and counts it as used until the removal', async () => {
    const { images, collector } = createAgent();
    await pull(images, 'ours:1');
    addContainer('sha256:ours:1');
    await clock.advance(IDLE_MS);
    await collector.collect(images);
    server.containers.clear();
    await clock.advance(IDLE_MS - 1);
    await collector.collect(images);
    expect([...server.images]).toEqual(['ours:1']);
    await clock.advance(1);
    await collector.collect(images);
    expect([...server.images]).toEqual([]);
  });

  it('removes only images of its own cluster, including those that another agent pulled', async () => {
    const [one, other, friend] = [createAgent('c1'), createAgent('c2'), createAgent('c1')];
    await pull(one.images, 'one:1');
    await pull(other.images, 'other:1');
    await clock.advance(IDLE_MS);
    await other.collector.collect(other.images);
    expect([...server.images]).toEqual(['one:1']);
    await friend.collector.collect(friend.images);
    expect([...server.images]).toEqual([]);
  });

  it('keeps the image of a container that another agent creates meanwhile', async () => {
    await pull(createAgent().images, 'ours:1');
    await clock.advance(IDLE_MS);
    let lists = 0;
    server.overrides.listContainers = () => {
      lists += 1;
      return { containers: lists === 1 ? [] : [{ id: 'new', image: { image: 'ours:1' } }] };
    };
    await restartServer();
    const { images, collector } = createAgent();
    await collector.collect(images);
    expect([[...server.images], lists]).toEqual([['ours:1'], 2]);
  });

  it('makes no call while no image was pulled, and removes nothing while there is space', async () => {
    const { images, collector } = createAgent();
    server.images.add('theirs:1');
    await collector.collect(images);
    expect(server.calls).toEqual([]);
    await pull(images, 'ours:1');
    await clock.advance(IDLE_MS);
    availableBytes = 50;
    await collector.collect(images);
    expect([...server.images]).toEqual(['theirs:1', 'ours:1']);
    expect(warnings).toEqual([]);
  });

  it('keeps the record of an image that the runtime fails to remove', async () => {
    server.imageOverrides.removeImage = () => {
      throw new Error('busy');
    };
    await restartServer();
    const { images, collector, ledger } = createAgent();
    availableBytes = 11;
    await pull(images, 'ours:1');
    await clock.advance(IDLE_MS);
    await collector.collect(images);
    expect([warnings, ledger.read().length]).toEqual([['image not removed'], 1]);
  });
});

it('openCriRuntime collects images periodically by the usage of their disk', async () => {
  const { socketPath, logDirectory, home } = server;
  server.images.add('theirs:1');
  const runtime = await openCriRuntime({
    ...{
      socketPath,
      logDirectory,
      imageDirectory: path.join(home, 'images'),
      owner: { cluster: 'c1', node: 'n1' },
    },
    imageCollection: { highPercent: 0, lowPercent: 0, minIdleMs: 0, checkMs: 5 },
    ...{ clock: systemClock, log: silentLog },
  });
  try {
    const request = aRequest({ image: 'ours:1' });
    await runtime.start(request);
    expect([...server.images]).toEqual(['theirs:1', 'ours:1']);
    await runtime.stop(request.containerId, 0);
    await runtime.remove(request.containerId);
    await waitUntil(() => !server.images.has('ours:1'));
    expect([...server.images]).toEqual(['theirs:1']);
    expect(server.calls).toContain('imageFsInfo');
  } finally {
    await runtime.close();
  }
});

describe('ImageCollector after the wall clock was set back', () => {
  it('treats a use in the future as a use now', async () => {
    const { images, collector, ledger } = createAgent();
    await pull(images, 'ours:1');
    await ledger.change(async (pulled) =>
      pulled.map((each) => ({ ...each, usedAtMs: clock.wallTime() + 1_000 * IDLE_MS })),
    );
    await clock.advance(IDLE_MS);
    await collector.collect(images);
    expect(ledger.read()).toMatchObject([{ usedAtMs: clock.wallTime() }]);
    await clock.advance(IDLE_MS);
    await collector.collect(images);
    expect([...server.images]).toEqual([]);
  });
});

describe('ImageLedger', () => {
  it('drops images that another program has removed', async () => {
    const { images, collector, ledger } = createAgent();
    await pull(images, 'ours:1');
    expect(ledger.read()).toMatchObject([
      { id: 'sha256:ours:1', cluster: 'c1', names: ['ours:1'] },
    ]);
    server.images.clear();
    await collector.collect(images);
    expect(ledger.read()).toEqual([]);
  });

  it('counts as empty when it is damaged, so that no image of it is removed', async () => {
    const { images, collector } = createAgent();
    await pull(images, 'ours:1');
    await clock.advance(IDLE_MS);
    const directory = path.join(server.home, 'images');
    const file = path.join(
      directory,
      readdirSync(directory).find((name) => name.endsWith('.json')) ?? '',
    );
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ format: 1 });
    for (const text of [
      '{',
      '{"format":2,"images":[]}',
      '{"format":1,"images":[{"id":3}]}',
      'null',
    ]) {
      writeFileSync(file, text);
      await collector.collect(images);
    }
    expect([...server.images]).toEqual(['ours:1']);
    expect(new Set(warnings)).toEqual(
      new Set(['list of pulled images is damaged and starts empty']),
    );
  });

  it('does not fail a pull when it cannot be written', async () => {
    writeFileSync(path.join(server.home, 'images'), 'a file in the place of the folder');
    const { images } = createAgent();
    await pull(images, 'ours:1');
    expect([...server.images]).toEqual(['ours:1']);
    expect(warnings).toEqual(['pulled image not recorded: it will stay on this node']);
  });
});

describe('withPull', () => {
  const image = (id: string, ...names: string[]): PresentImage => ({
    id,
    names,
    sizeBytes: 1,
    isPinned: false,
  });
  const entry = (id: string, names: string[], cluster = 'c1'): PulledImage => ({
    id,
    names,
    cluster,
    usedAtMs: 5,
  });
  it.each([
    {
      name: 'adds a new image with its names',
      pulled: [],
      before: [],
      brought: image('a', 't:1', 't@d'),
      gives: [['t:1', 't@d']],
    },
    {
      name: 'adds nothing for an image that existed before',
      pulled: [],
      before: [image('a')],
      brought: image('a', 't:1'),
      gives: [],
    },
    {
      name: 'adds nothing for an image that another cluster had pulled',
      pulled: [entry('a', ['x:1'], 'c2')],
      before: [image('a', 'x:1')],
      brought: image('a', 'x:1', 't:1'),
      gives: [['x:1']],
    },
    {
      name: 'adds a pulled name to an own image, but no name from another source',
      pulled: [entry('a', ['t:1'])],
      before: [image('a', 't:1', 'theirs:1')],
      brought: image('a', 't:1', 't:2', 'theirs:1'),
      gives: [['t:1', 't:2']],
    },
    {
      name: 'adds an own name that moved to another image, but no name from another source',
      pulled: [entry('a', ['t:1'])],
      before: [image('a', 't:1'), image('z', 'theirs:1')],
      brought: image('b', 't:1', 'theirs:1'),
      gives: [['t:1'], ['t:1']],
    },
  ])('$name', ({ pulled, before, brought, gives }) => {
    const after = addPull(pulled, { before, image: brought, cluster: 'c1', nowMs: 9 });
    expect(after.map(({ names }) => names)).toEqual(gives);
  });
});
