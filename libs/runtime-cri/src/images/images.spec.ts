import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Code, ConnectError } from '@connectrpc/connect';
import { definedFields, StoppedError, type ContainerId } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ContainerRequest, PullPolicy, StartProgress } from '@cloudless/runtime';
import { systemClock } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { FakeCriServer } from '../testing/fake-cri-server.js';
import { waitUntil } from '../testing/real-cri-machine.js';
import { Images } from './images.js';

const NGINX = 'nginx:alpine';
const never = new AbortController().signal;
let server: FakeCriServer;
let client: CriClient;
let clock: ManualClock;
let images: Images;
/** Behaviour of the fake registry. */
let registry: (signal: AbortSignal) => Promise<void>;
/** Delay of the fake's answer about an image. */
let answering: () => Promise<void>;

beforeEach(async () => {
  server = new FakeCriServer();
  registry = async () => undefined;
  server.imageOverrides.pullImage = async ({ image }, { signal }) => {
    await registry(signal);
    server.images.add(image?.image ?? '');
    return { imageRef: `sha256:${image?.image}` };
  };
  answering = async () => undefined;
  server.imageOverrides.imageStatus = async ({ image }) => {
    const name = (image?.image ?? '').replace(/^sha256:/, '');
    const answer = server.images.has(name) ? { image: { id: `sha256:${name}`, size: 10n } } : {};
    await answering();
    return answer;
  };
  await server.listen();
  client = new CriClient({ socketPath: server.socketPath, clock: systemClock });
  clock = new ManualClock();
  images = new Images({ client, clock, record: async () => async () => undefined });
});
afterEach(async () => {
  client.close();
  await server.dispose();
});

function createRequest(digit: string, imagePull?: PullPolicy): ContainerRequest {
  const containerId = digit.repeat(64) as ContainerId;
  const rest = { labels: {}, command: [], args: [], env: {}, ports: [], limits: {} };
  return { containerId, image: NGINX, ...rest, ...definedFields({ imagePull }) };
}

async function prepare(
  request: ContainerRequest,
  signal: AbortSignal = never,
): Promise<readonly StartProgress[]> {
  const steps: StartProgress[] = [];
  await images.prepare(request, (step) => steps.push(step), signal);
  return steps;
}

const pulls = (): number => server.calls.filter((name) => name === 'pullImage').length;
/** Makes the registry answer only on request of the test. */
function gate(): { readonly open: () => void; readonly gone: Promise<void> } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  const gone = new Promise<void>((resolve) => {
    registry = (signal) => {
      signal.addEventListener('abort', () => resolve());
      return opened;
    };
  });
  return { open, gone };
}
const away = async (): Promise<void> => {
  throw new ConnectError(
    'failed to resolve reference: dial tcp 127.0.0.1:5000: connection refused',
    Code.Unknown,
  );
};

describe('Images.prepare', () => {
  it('pulls nothing and reports nothing when the image is present', async () => {
    server.images.add(NGINX);
    expect(await prepare(createRequest('a'))).toEqual([]);
    expect(pulls()).toBe(0);
  });

  it('pulls an image once for concurrent requests and reports progress to each', async () => {
    const { open } = gate();
    const all = ['a', 'b', 'c'].map((digit) => prepare(createRequest(digit)));
    await waitUntil(() => pulls() === 1);
    const late = prepare(createRequest('d'));
    open();
    const told = [
      { kind: 'pulling', image: NGINX },
      { kind: 'pulled', image: NGINX, tookMs: 0, sizeBytes: 10 },
    ];
    expect(await Promise.all([...all, late])).toEqual([told, told, told, told]);
    expect(pulls()).toBe(1);
  });

  it('waits for a slow pull and reports its duration', async () => {
    const { open } = gate();
    const preparing = prepare(createRequest('a'));
    await waitUntil(() => pulls() === 1);
    await clock.advance(1_234);
    open();
    expect(await preparing).toMatchObject([{ kind: 'pulling' }, { kind: 'pulled', tookMs: 1_234 }]);
  });

  it('continues a pull while one request remains and cancels it when all have left', async () => {
    const first = new AbortController();
    const second = new AbortController();
    const { open, gone } = gate();
    const [leaves, stays] = [
      prepare(createRequest('a'), first.signal),
      prepare(createRequest('b')),
    ];
    await waitUntil(() => pulls() === 1);
    first.abort();
    await expect(leaves).rejects.toBeInstanceOf(StoppedError);
    open();
    expect(await stays).toHaveLength(2);
    server.images.clear();
    const again = gate();
    const only = prepare(createRequest('c'), second.signal);
    await waitUntil(() => pulls() === 2);
    second.abort();
    await expect(only).rejects.toBeInstanceOf(StoppedError);
    await again.gone; // the runtime was notified
    await expect(gone).resolves.toBeUndefined();
  });

  it('makes no call for a request that was cancelled before', async () => {
    await expect(prepare(createRequest('a'), AbortSignal.abort())).rejects.toBeInstanceOf(
      StoppedError,
    );
    expect(server.calls).toEqual([]);
  });
});

describe('image pull policy', () => {
  it('never: refuses a missing image without a call to the registry', async () => {
    await expect(prepare(createRequest('a', 'never'))).rejects.toMatchObject({
      kind: 'precondition',
      message: 'image nginx:alpine is not on this node, and image_pull.policy is NEVER',
    });
    server.images.add(NGINX);
    expect(await prepare(createRequest('a', 'never'))).toEqual([]);
    expect(pulls()).toBe(0);
  });

  it('always: calls the registry for a present image, reports its error, and leaves other starts alone', async () => {
    server.images.add(NGINX);
    expect(await prepare(createRequest('a', 'always'))).toMatchObject([
      { kind: 'pulling' },
      { kind: 'pulled' },
    ]);
    const steps: StartProgress[] = [];
    registry = away;
    const message =
      'image nginx:alpine cannot be pulled: failed to resolve reference: dial tcp 127.0.0.1:5000: connection refused';
    await expect(
      images.prepare(createRequest('b', 'always'), (step) => steps.push(step), never),
    ).rejects.toMatchObject({
      kind: 'precondition',
      message,
    });
    expect(steps).toEqual([
      { kind: 'pulling', image: NGINX },
      { kind: 'pullFailed', image: NGINX, tookMs: 0, reason: message },
    ]);
    const { open } = gate();
    const waits = prepare(createRequest('c', 'always'));
    await waitUntil(() => pulls() === 3);
    expect(await prepare(createRequest('d'))).toEqual([]);
    open();
    await waits;
  });
});

describe('Images.resolve', () => {
  it('returns the prepared image without a call', async () => {
    await prepare(createRequest('a', 'always'));
    registry = away;
    const asked = server.calls.length;
    expect(await images.resolve(createRequest('a', 'always'))).toBe(`sha256:${NGINX}`);
    expect(server.calls).toHaveLength(asked);
  });

  it('fetches an image that was not prepared, or was prepared for another image name', async () => {
    await prepare({ ...createRequest('a'), image: 'other:1' });
    expect(await images.resolve(createRequest('a'))).toBe(`sha256:${NGINX}`);
    expect(await images.resolve(createRequest('b'))).toBe(`sha256:${NGINX}`);
    expect(pulls()).toBe(2);
  });

  it('holds the image until the container exists, or for 10 minutes when the start never comes', async () => {
    await prepare(createRequest('a'));
    await images.resolve(createRequest('a'));
    await prepare({ ...createRequest('b'), image: 'other:1' });
    expect([...images.getHeldIds()]).toEqual([`sha256:${NGINX}`, 'sha256:other:1']);
    await clock.advance(600_001);
    expect([...images.getHeldIds()]).toEqual([`sha256:${NGINX}`]);
    images.release(createRequest('a').containerId);
    expect(images.getHeldIds().size).toBe(0);
  });
});

describe('Images.removeIdle', () => {
  const ID = `sha256:${NGINX}`;
  const remove = async (): Promise<void> => void server.images.delete(NGINX);

  it('keeps an image that is held or was requested recently', async () => {
    await prepare(createRequest('a'));
    await clock.advance(200_000);
    expect(await images.removeIdle(ID, 120_000, remove)).toBe(false);
    images.release(createRequest('a').containerId);
    await prepare(createRequest('b'));
    images.release(createRequest('b').containerId);
    expect(await images.removeIdle(ID, 120_000, remove)).toBe(false);
    await clock.advance(120_000);
    expect(await images.removeIdle(ID, 120_000, remove)).toBe(true);
    expect(images.getIdleMs().has(ID)).toBe(false);
  });

  it('makes concurrent requests wait and pull the image again', async () => {
    server.images.add(NGINX);
    let removed = (): void => undefined;
    const told = new Promise<void>((resolve) => (removed = resolve));
    const removing = images.removeIdle(ID, 0, () => told.then(remove));
    const asking = prepare(createRequest('a'));
    await client.version(); // on the same connection: earlier calls have arrived
    expect(server.calls).toEqual(['version']);
    removed();
    expect(await removing).toBe(true);
    expect(await asking).toHaveLength(2);
  });

  it('invalidates a lookup that began before the removal', async () => {
    server.images.add(NGINX);
    let answer = (): void => undefined;
    const held = new Promise<void>((resolve) => (answer = resolve));
    answering = () => held;
    const asking = prepare(createRequest('a'));
    await waitUntil(() => server.calls.includes('imageStatus'));
    expect(await images.removeIdle(ID, 0, remove)).toBe(true);
    answer();
    expect(await asking).toMatchObject([{ kind: 'pulling' }, { kind: 'pulled' }]);
  });
});
