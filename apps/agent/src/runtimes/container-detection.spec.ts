import { describe, expect, it } from '@jest/globals';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { CriProbe } from '@cloudless/runtime-cri';
import {
  createContainersMissingError,
  detectContainerRuntime,
  type DetectionResult,
  type DetectionOptions,
} from './container-detection.js';

const HEALTHY: CriProbe = {
  name: 'containerd',
  version: '1.6.20',
  ready: true,
  notReady: [],
  foreign: { count: 0, names: [] },
  capabilities: ['runtime.cri'],
};

/** Detects among three sockets; `answers` has the response of each socket that exists. */
function detect(
  answers: Readonly<Record<string, Partial<CriProbe> | CloudlessError>>,
  options: Partial<DetectionOptions> = {},
): Promise<DetectionResult> {
  return detectContainerRuntime({
    sockets: ['/run/a.sock', '/run/b.sock', '/run/c.sock'],
    shared: false,
    isRoot: true,
    clock: new ManualClock(),
    exists: (path) => Object.hasOwn(answers, path),
    probe: async ({ socketPath }) => {
      const answer =
        answers[socketPath] ??
        new CloudlessError('unavailable', `no container runtime answers at ${socketPath}`);
      if (answer instanceof CloudlessError) throw answer;
      return { ...HEALTHY, ...answer };
    },
    ...options,
  });
}

const noAnswer = new CloudlessError(
  'unavailable',
  'no container runtime answers at /run/a.sock (ECONNREFUSED)',
);
const foreign = {
  foreign: { count: 5, names: ['kube-system/dns', 'kube-system/proxy', 'default/web'] },
};

describe('detectContainerRuntime', () => {
  it.each<{
    name: string;
    answers: Parameters<typeof detect>[0];
    options?: Partial<DetectionOptions>;
    socketPath: string;
  }>([
    {
      name: 'the first usual socket',
      answers: { '/run/a.sock': {}, '/run/b.sock': {} },
      socketPath: '/run/a.sock',
    },
    { name: 'the first present socket', answers: { '/run/c.sock': {} }, socketPath: '/run/c.sock' },
    {
      name: 'the first socket that answers',
      answers: { '/run/a.sock': noAnswer, '/run/b.sock': {} },
      socketPath: '/run/b.sock',
    },
    {
      name: 'the first runtime without containers of other programs',
      answers: { '/run/a.sock': foreign, '/run/b.sock': {} },
      socketPath: '/run/b.sock',
    },
    {
      name: 'the socket that is named',
      answers: { '/run/x.sock': {} },
      options: { socketPath: '/run/x.sock' },
      socketPath: '/run/x.sock',
    },
    {
      name: 'a runtime of other programs when sharing is allowed',
      answers: { '/run/a.sock': foreign },
      options: { shared: true },
      socketPath: '/run/a.sock',
    },
  ])('finds $name', async ({ answers, options, socketPath }) => {
    expect(await detect(answers, options)).toEqual({
      kind: 'found',
      socketPath,
      probe: expect.anything(),
    });
  });

  it.each<{
    reason: string;
    answers: Parameters<typeof detect>[0];
    options?: Partial<DetectionOptions>;
  }>([
    {
      reason: 'no container runtime was found at /run/a.sock, /run/b.sock or /run/c.sock',
      answers: {},
    },
    {
      reason: 'no container runtime answers at /run/a.sock (ECONNREFUSED)',
      answers: { '/run/a.sock': noAnswer },
    },
    {
      reason: 'no container runtime answers at /run/x.sock',
      answers: { '/run/a.sock': {} },
      options: { socketPath: '/run/x.sock' },
    },
    {
      reason:
        'containerd 1.6.20 at /run/a.sock is not ready: NetworkReady is false: no CNI; RuntimeReady is false',
      answers: {
        '/run/a.sock': {
          ready: false,
          notReady: ['NetworkReady is false: no CNI', 'RuntimeReady is false'],
        },
      },
      options: { shared: true },
    },
    {
      reason:
        'containerd 1.6.20 at /run/a.sock is used by other programs (5 pods: kube-system/dns, kube-system/proxy, default/web, …); --runtime cri shares it with them',
      answers: { '/run/a.sock': foreign },
    },
    {
      reason:
        'containerd 1.6.20 at /run/a.sock is used by other programs (1 pod: kube-system/dns); --runtime cri shares it with them',
      answers: { '/run/a.sock': { foreign: { count: 1, names: ['kube-system/dns'] } } },
    },
    {
      reason:
        'no container runtime answers at /run/a.sock (ECONNREFUSED); containerd 1.6.20 at /run/b.sock is used by other programs ' +
        '(1 pod: kube-system/dns); --runtime cri shares it with them',
      answers: {
        '/run/a.sock': noAnswer,
        '/run/b.sock': { foreign: { count: 1, names: ['kube-system/dns'] } },
      },
    },
    {
      reason: 'the agent must run as root to use the container runtime at /run/b.sock',
      answers: { '/run/b.sock': {} },
      options: { isRoot: false },
    },
  ])('finds none: $reason', async ({ reason, answers, options }) => {
    expect(await detect(answers, options)).toEqual({ kind: 'none', reason });
  });
});

it('createContainersMissingError returns an error with the reason and the remedies', () => {
  expect(
    createContainersMissingError('no container runtime was found at /run/a.sock'),
  ).toMatchObject({
    kind: 'precondition',
    message:
      '--runtime cri: no container runtime was found at /run/a.sock. Start a container runtime that supports the CRI (containerd 1.6, ' +
      'CRI-O 1.23, or newer) and name its socket with --cri-socket, or run without containers with --runtime process',
  });
});
