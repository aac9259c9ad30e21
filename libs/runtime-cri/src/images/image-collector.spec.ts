import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { silentLog, type ContainerId, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { systemClock } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { ContainerConfigSchema, ContainerState } from '../gen/runtime/v1/api_pb.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { openRuntime } from '../testing/open-runtime.js';
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

/** Restarts the server so that its overrides take effect. */
async function restartServer(): Promise<void> {
  client.close();
  await server.disconnect();
  await server.listen();
  client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
}

/** Creates the parts of one agent. All agents share one ledger. */
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
    directory: path.join(server.directory, 'images'),
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

let containerCount = 0;
/** Pulls an image for a new container and releases the image at once. */
async function pull(images: Images, image: string): Promise<void> {
  const containerId = String((containerCount += 1)).padStart(64, '0') as ContainerId;
  const rest = { labels: {}, command: [], args: [], env: {}, ports: [], limits: {} };
  await images.resolve({ containerId, image, imagePull: 'always', ...rest });
  images.release(containerId);
}

/** Adds an exited container of another owner. */
function addContainer(image: string): void {
  const config = create(ContainerConfigSchema, { image: { image } });
  const state = ContainerState.CONTAINER_EXITED;
  const rest = { podSandboxId: '', createdAt: 0n, finishedAt: 0n, exitCode: 0, reason: '', pid: 0 };
  server.containers.set('theirs', { id: 'theirs', config, state, ...rest });
}

describe('ImageCollector.collect', () => {
  it('removes an unused image on a full disk, but no image that existed before its first pull', async () => {
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

  it('keeps the image of an exited container until it was unused for minIdleMs', async () => {
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

  it('removes images that another agent of its cluster pulled, but none of another cluster', async () => {
    const [first, otherCluster, sameCluster] = [
      createAgent('c1'),
      createAgent('c2'),
      createAgent('c1'),
    ];
    await pull(first.images, 'one:1');
    await pull(otherCluster.images, 'other:1');
    await clock.advance(IDLE_MS);
    await otherCluster.collector.collect(otherCluster.images);
    expect([...server.images]).toEqual(['one:1']);
    await sameCluster.collector.collect(sameCluster.images);
    expect([...server.images]).toEqual([]);
  });

  it('keeps the image of a container that another agent creates during the collection', async () => {
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

  it('makes no call before the first pull, and removes nothing while the disk has space', async () => {
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

describe('openCriRuntime', () => {
  it('removes an unused image periodically when the disk usage exceeds the limit', async () => {
    server.images.add('theirs:1');
    const runtime = await openRuntime(server, {
      imageDirectory: path.join(server.directory, 'images'),
      imageCollection: { highPercent: 0, lowPercent: 0, minIdleMs: 0, checkMs: 5 },
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
});

describe('ImageCollector.collect after the wall clock was set back', () => {
  it('treats a use in the future as a use at the current time', async () => {
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
  it('loses an image at the next collection when another program has removed the image', async () => {
    const { images, collector, ledger } = createAgent();
    await pull(images, 'ours:1');
    expect(ledger.read()).toMatchObject([
      { id: 'sha256:ours:1', cluster: 'c1', names: ['ours:1'] },
    ]);
    server.images.clear();
    await collector.collect(images);
    expect(ledger.read()).toEqual([]);
  });

  it('counts as empty with a warning when its file is damaged, so that no image is removed', async () => {
    const { images, collector } = createAgent();
    await pull(images, 'ours:1');
    await clock.advance(IDLE_MS);
    const directory = path.join(server.directory, 'images');
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

  it('does not fail a pull when its file cannot be written', async () => {
    writeFileSync(path.join(server.directory, 'images'), 'a file in the place of the folder');
    const { images } = createAgent();
    await pull(images, 'ours:1');
    expect([...server.images]).toEqual(['ours:1']);
    expect(warnings).toEqual(['pulled image not recorded: it will stay on this node']);
  });
});

describe('addPull', () => {
  const anImage = (id: string, ...names: string[]): PresentImage => ({
    id,
    names,
    sizeBytes: 1,
    isPinned: false,
  });
  const aRecord = (id: string, names: string[], cluster = 'c1'): PulledImage => ({
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
      image: anImage('a', 't:1', 't@d'),
      expected: [['t:1', 't@d']],
    },
    {
      name: 'adds nothing for an image that existed before',
      pulled: [],
      before: [anImage('a')],
      image: anImage('a', 't:1'),
      expected: [],
    },
    {
      name: 'adds nothing for an image that another cluster has pulled before',
      pulled: [aRecord('a', ['x:1'], 'c2')],
      before: [anImage('a', 'x:1')],
      image: anImage('a', 'x:1', 't:1'),
      expected: [['x:1']],
    },
    {
      name: 'adds the pulled name to an image of this cluster, but no name from another source',
      pulled: [aRecord('a', ['t:1'])],
      before: [anImage('a', 't:1', 'theirs:1')],
      image: anImage('a', 't:1', 't:2', 'theirs:1'),
      expected: [['t:1', 't:2']],
    },
    {
      name: 'adds a name of this cluster that has moved to another image, but no name from another source',
      pulled: [aRecord('a', ['t:1'])],
      before: [anImage('a', 't:1'), anImage('z', 'theirs:1')],
      image: anImage('b', 't:1', 'theirs:1'),
      expected: [['t:1'], ['t:1']],
    },
  ])('$name', ({ pulled, before, image, expected }) => {
    const after = addPull(pulled, { before, image, cluster: 'c1', nowMs: 9 });
    expect(after.map(({ names }) => names)).toEqual(expected);
  });
});
