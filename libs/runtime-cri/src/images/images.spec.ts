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
/** Behaviour of the fake registry during a pull. */
let registry: (signal: AbortSignal) => Promise<void>;
/** User name and password of each pull. */
let accounts: (string | undefined)[];
/** Delays the answer of the fake runtime to a lookup of an image. */
let delayLookup: () => Promise<void>;

beforeEach(async () => {
  server = new FakeCriServer();
  registry = async () => undefined;
  accounts = [];
  server.imageOverrides.pullImage = async ({ image, auth }, { signal }) => {
    accounts.push(auth === undefined ? undefined : `${auth.username}:${auth.password}`);
    await registry(signal);
    server.images.add(image?.image ?? '');
    return { imageRef: `sha256:${image?.image}` };
  };
  delayLookup = async () => undefined;
  server.imageOverrides.imageStatus = async ({ image }) => {
    const name = (image?.image ?? '').replace(/^sha256:/, '');
    const answer = server.images.has(name) ? { image: { id: `sha256:${name}`, size: 10n } } : {};
    await delayLookup();
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

/** Returns the number of pulls so far. */
const countPulls = (): number => server.calls.filter((name) => name === 'pullImage').length;
/**
 * Blocks the pulls that begin from now on.
 * @returns `open` completes these pulls; `cancelled` resolves when one of them is cancelled or the
 *   connection of its call is closed.
 */
function blockPulls(): { readonly open: () => void; readonly cancelled: Promise<void> } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  const cancelled = new Promise<void>((resolve) => {
    registry = (signal) => {
      signal.addEventListener('abort', () => resolve());
      return opened;
    };
  });
  return { open, cancelled };
}
/** Behaviour of a registry that is unreachable. */
const failPull = async (): Promise<void> => {
  throw new ConnectError(
    'failed to resolve reference: dial tcp 127.0.0.1:5000: connection refused',
    Code.Unknown,
  );
};

describe('Images.prepare', () => {
  it('sends the credentials of the image to the runtime with the pull only', async () => {
    const imageCredentials = { username: 'puller', password: 'canary' };
    await prepare({ ...createRequest('a', 'always'), imageCredentials });
    await prepare(createRequest('b', 'always'));
    expect(accounts).toEqual(['puller:canary', undefined]);
  });

  it('pulls nothing and reports nothing when the image is present', async () => {
    server.images.add(NGINX);
    expect(await prepare(createRequest('a'))).toEqual([]);
    expect(countPulls()).toBe(0);
  });

  it('pulls an image once for concurrent requests and reports progress to each', async () => {
    const { open } = blockPulls();
    const all = ['a', 'b', 'c'].map((digit) => prepare(createRequest(digit)));
    await waitUntil(() => countPulls() === 1);
    const late = prepare(createRequest('d'));
    open();
    const expectedSteps = [
      { kind: 'pulling', image: NGINX },
      { kind: 'pulled', image: NGINX, tookMs: 0, sizeBytes: 10 },
    ];
    expect(await Promise.all([...all, late])).toEqual([
      expectedSteps,
      expectedSteps,
      expectedSteps,
      expectedSteps,
    ]);
    expect(countPulls()).toBe(1);
  });

  it('waits for a slow pull and reports its duration', async () => {
    const { open } = blockPulls();
    const preparing = prepare(createRequest('a'));
    await waitUntil(() => countPulls() === 1);
    await clock.advance(1_234);
    open();
    expect(await preparing).toMatchObject([{ kind: 'pulling' }, { kind: 'pulled', tookMs: 1_234 }]);
  });

  it('continues a pull while one request remains and cancels it when all have left', async () => {
    const first = new AbortController();
    const second = new AbortController();
    const { open, cancelled } = blockPulls();
    const [leaves, stays] = [
      prepare(createRequest('a'), first.signal),
      prepare(createRequest('b')),
    ];
    await waitUntil(() => countPulls() === 1);
    first.abort();
    await expect(leaves).rejects.toBeInstanceOf(StoppedError);
    open();
    expect(await stays).toHaveLength(2);
    server.images.clear();
    const again = blockPulls();
    const only = prepare(createRequest('c'), second.signal);
    await waitUntil(() => countPulls() === 2);
    second.abort();
    await expect(only).rejects.toBeInstanceOf(StoppedError);
    await again.cancelled;
    await expect(cancelled).resolves.toBeUndefined(); // after its end, the first pull is cancelled, too
  });

  it('makes no call when its signal was aborted before', async () => {
    await expect(prepare(createRequest('a'), AbortSignal.abort())).rejects.toBeInstanceOf(
      StoppedError,
    );
    expect(server.calls).toEqual([]);
  });
});

describe('Images.prepare with a pull policy', () => {
  it('refuses a missing image without a pull when the policy is never', async () => {
    await expect(prepare(createRequest('a', 'never'))).rejects.toMatchObject({
      kind: 'precondition',
      message: 'image nginx:alpine is not on this node, and image_pull.policy is NEVER',
    });
    server.images.add(NGINX);
    expect(await prepare(createRequest('a', 'never'))).toEqual([]);
    expect(countPulls()).toBe(0);
  });

  it('pulls a present image and reports the error of the registry when the policy is always', async () => {
    server.images.add(NGINX);
    expect(await prepare(createRequest('a', 'always'))).toMatchObject([
      { kind: 'pulling' },
      { kind: 'pulled' },
    ]);
    const steps: StartProgress[] = [];
    registry = failPull;
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
  });

  it('does not make a request without a policy wait for the pull of a request with policy always', async () => {
    server.images.add(NGINX);
    const { open } = blockPulls();
    const waiting = prepare(createRequest('c', 'always'));
    await waitUntil(() => countPulls() === 1);
    expect(await prepare(createRequest('d'))).toEqual([]);
    open();
    await waiting;
  });
});

describe('Images.resolve', () => {
  it('returns the prepared image without a call', async () => {
    await prepare(createRequest('a', 'always'));
    registry = failPull;
    const callsBefore = server.calls.length;
    expect(await images.resolve(createRequest('a', 'always'))).toBe(`sha256:${NGINX}`);
    expect(server.calls).toHaveLength(callsBefore);
  });

  it('pulls a missing image that was not prepared for this container id and name', async () => {
    await prepare({ ...createRequest('a'), image: 'other:1' });
    expect(await images.resolve(createRequest('a'))).toBe(`sha256:${NGINX}`);
    expect(await images.resolve(createRequest('b'))).toBe(`sha256:${NGINX}`);
    expect(countPulls()).toBe(2);
  });

  it('holds the image until release, while a prepared image without a start expires after 10 min', async () => {
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

  it('keeps an image while it is held and until it was not requested for minIdleMs', async () => {
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

  it('makes a concurrent request wait for the removal and pull the image again', async () => {
    server.images.add(NGINX);
    let allowRemoval = (): void => undefined;
    const allowed = new Promise<void>((resolve) => (allowRemoval = resolve));
    const removing = images.removeIdle(ID, 0, () => allowed.then(remove));
    const preparing = prepare(createRequest('a'));
    await client.version(); // uses the same connection, so earlier calls have arrived
    expect(server.calls).toEqual(['version']);
    allowRemoval();
    expect(await removing).toBe(true);
    expect(await preparing).toHaveLength(2);
  });

  it('repeats a lookup that began before the removal, so that the image is pulled again', async () => {
    server.images.add(NGINX);
    let answer = (): void => undefined;
    const held = new Promise<void>((resolve) => (answer = resolve));
    delayLookup = () => held;
    const preparing = prepare(createRequest('a'));
    await waitUntil(() => server.calls.includes('imageStatus'));
    expect(await images.removeIdle(ID, 0, remove)).toBe(true);
    answer();
    expect(await preparing).toMatchObject([{ kind: 'pulling' }, { kind: 'pulled' }]);
  });
});
