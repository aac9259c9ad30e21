import { describe, expect, it } from '@jest/globals';
import { InvalidInputError } from '@cloudless/base';
import { Taint_Effect } from '@cloudless/api';
import {
  defaultDataDir,
  defaultName,
  defaultStartConcurrency,
  parseAgentConfig,
} from './config.js';

const parse = (values: Record<string, unknown>) =>
  parseAgentConfig([{ source: 'test', values }], { HOME: '/home/a' });

function problemsOf(values: Record<string, unknown>): readonly string[] {
  try {
    parse(values);
    return [];
  } catch (reason) {
    return reason instanceof InvalidInputError
      ? reason.violations.map(({ field, message }) => `${field}: ${message}`)
      : [String(reason)];
  }
}

describe('parseAgentConfig', () => {
  it('fills in the default of every setting', () => {
    expect(parse({ name: 'a1' })).toEqual({
      name: 'a1',
      coordinator: ['http://127.0.0.1:8080'],
      joinToken: undefined,
      joinTokenFile: undefined,
      dataDir: '/home/a/.local/state/cloudless/agent-a1',
      listen: undefined,
      region: '',
      zone: '',
      label: {},
      taint: [],
      maxReplicas: 110,
      startConcurrency: defaultStartConcurrency(),
      reserveCpu: 0,
      reserveMemory: 0,
      reserveStorage: 0,
      bandwidth: 0,
      customResource: {},
      portRange: { from: 20_000, to: 29_999 },
      runtime: 'auto',
      criSocket: undefined,
      denyProcesses: false,
      allowPrivileged: false,
      allowDevice: [],
      allowHostPath: [],
      allowSysctl: [],
      maxPids: 4_096,
      stopWorkloadsOnExit: false,
      logLevel: 'info',
      logFormat: 'auto',
      opsListen: undefined,
      network: 'auto',
      meshListen: undefined,
      meshAdvertise: undefined,
      ingressHttp: undefined,
      ingressHttps: undefined,
      otlpEndpoint: undefined,
      traceShare: 0.01,
    });
  });

  it('accepts a start concurrency of 1 or more; the default is twice the processors, at least 4', () => {
    expect([1, 2, 3, 64].map(defaultStartConcurrency)).toEqual([4, 4, 6, 128]);
    expect(parse({ name: 'a1', startConcurrency: '7' }).startConcurrency).toBe(7);
    expect(problemsOf({ startConcurrency: '0' })).toEqual([
      expect.stringContaining('startConcurrency: '),
    ]);
  });

  it('uses the value of the last layer that sets a field', () => {
    const layers = [
      { source: 'file', values: { name: 'a1', zone: 'z1' } },
      { source: 'environment', values: { zone: 'z2', region: undefined } },
    ];
    expect(parseAgentConfig(layers)).toMatchObject({ name: 'a1', zone: 'z2' });
  });

  it.each([
    [
      'coordinator',
      'http://127.0.0.1:1/,http://localhost:2',
      ['http://127.0.0.1:1', 'http://localhost:2'],
    ],
    ['coordinator', ['http://127.0.0.1:1'], ['http://127.0.0.1:1']],
    [
      'coordinator',
      'https://one.example:8080/,https://10.0.0.2',
      ['https://one.example:8080', 'https://10.0.0.2'],
    ],
    ['listen', '127.0.0.1:0', { host: '127.0.0.1', port: 0 }],
    ['listen', '9092', { host: '127.0.0.1', port: 9092 }],
    ['listen', '[::1]:9092', { host: '[::1]', port: 9092 }],
    ['label', 'a=1,b=x=y', { a: '1', b: 'x=y' }],
    ['label', ['a=1', 'b=2'], { a: '1', b: '2' }],
    ['label', { a: 1 }, { a: '1' }],
    [
      'taint',
      'gpu=yes:NO_SCHEDULE,slow:NO_EXECUTE',
      [
        { key: 'gpu', value: 'yes', effect: Taint_Effect.NO_SCHEDULE },
        { key: 'slow', value: '', effect: Taint_Effect.NO_EXECUTE },
      ],
    ],
    ['reserveCpu', '0.5', 500],
    ['reserveCpu', '250m', 250],
    ['reserveCpu', 2, 2_000],
    ['reserveMemory', '512Mi', 536_870_912],
    ['reserveMemory', '2G', 2_000_000_000],
    ['reserveStorage', '20Gi', 20 * 2 ** 30],
    ['bandwidth', '1G', 1e9],
    ['bandwidth', '2.5M', 2_500_000],
    ['customResource', 'example.com/license=4,fpga=1', { 'example.com/license': 4, fpga: 1 }],
    ['customResource', ['fpga=1', 'license=0'], { fpga: 1, license: 0 }],
    ['portRange', '30000-30010', { from: 30_000, to: 30_010 }],
    ['runtime', 'cri', 'cri'],
    ['criSocket', '/run/containerd//containerd.sock', '/run/containerd/containerd.sock'],
    ['criSocket', 'unix:///run/crio/crio.sock', '/run/crio/crio.sock'],
    ['allowPrivileged', 'true', true],
    ['denyProcesses', 'true', true],
    ['allowHostPath', '/srv/data/,/opt', ['/srv/data', '/opt']],
    ['allowHostPath', ['/srv/../opt'], ['/opt']],
    ['allowDevice', '/dev/fuse,/dev//kvm', ['/dev/fuse', '/dev/kvm']],
    ['allowSysctl', 'net.core.somaxconn,kernel.sem', ['net.core.somaxconn', 'kernel.sem']],
    ['maxPids', '100', 100],
    ['stopWorkloadsOnExit', 'true', true],
  ])('parses %s from %j', (key, raw, value) => {
    expect(parse({ [key]: raw })).toMatchObject({ [key]: value });
  });

  it.each([
    ['name', 'Not a label'],
    ['coordinator', 'ftp://127.0.0.1:1'],
    ['coordinator', 'https://user@example.com'],
    ['coordinator', 'https://example.com/path'],
    ['coordinator', 'http://example.com:8080'],
    ['coordinator', []],
    ['joinToken', 'clt1'],
    ['joinTokenFile', ''],
    ['listen', 'x'],
    ['listen', '127.0.0.1:70000'],
    ['label', 'novalue'],
    ['label', '-a=1'],
    ['taint', 'a=b:SOMETIMES'],
    ['taint', 7],
    ['reserveCpu', '-1'],
    ['reserveMemory', '1 GB'],
    ['bandwidth', '1Gi'],
    ['bandwidth', '2000T'],
    ['customResource', 'fpga'],
    ['customResource', 'fpga=0.5'],
    ['customResource', 'fpga=1,fpga=2'],
    ['customResource', '-a=1'],
    ['portRange', '5-4'],
    ['portRange', '20000'],
    ['runtime', 'docker'],
    ['criSocket', 'containerd.sock'],
    ['criSocket', 'tcp://127.0.0.1:1'],
    ['allowPrivileged', 'perhaps'],
    ['allowHostPath', ''],
    ['allowDevice', ''],
    ['allowDevice', 'fuse'],
    ['allowSysctl', ''],
    ['allowSysctl', 'vm.swappiness'],
    ['allowHostPath', 'srv'],
    ['maxPids', '0'],
    ['maxPids', '5000000'],
    ['maxReplicas', 'many'],
    ['logLevel', 'loud'],
  ])('rejects %s = %j and names the setting', (key, raw) => {
    expect(problemsOf({ [key]: raw })).toEqual([
      expect.stringMatching(new RegExp(`^test: ${key}: `)),
    ]);
  });

  it('rejects an agent that could run neither processes nor containers', () => {
    expect(problemsOf({ runtime: 'process', denyProcesses: true })).toEqual([
      'denyProcesses: leaves nothing that could run, because runtime is process: remove it or choose another runtime',
    ]);
    expect(problemsOf({ runtime: 'cri', denyProcesses: true })).toEqual([]);
  });

  it('rejects container settings when the runtime is process', () => {
    const containers = {
      criSocket: '/run/a.sock',
      allowPrivileged: true,
      allowHostPath: ['/srv'],
      allowSysctl: ['kernel.sem'],
      allowDevice: ['/dev/fuse'],
    };
    expect(problemsOf({ runtime: 'process', ...containers })).toEqual(
      ['criSocket', 'allowPrivileged', 'allowHostPath', 'allowSysctl', 'allowDevice'].map(
        (field) =>
          `${field}: applies to containers only, and runtime is process: remove it or choose another runtime`,
      ),
    );
    expect(parse({ runtime: 'cri', ...containers })).toMatchObject(containers);
  });

  it('reports all problems at once, including unknown keys and conflicts', () => {
    expect(problemsOf({ nmae: 'a', zone: 'a b', maxReplicas: -1 })).toHaveLength(3);
    expect(problemsOf({ listen: '127.0.0.1:20005' })).toEqual([
      'listen: port 20005 is within the port range of workloads, 20000 to 29999; choose another port or --port-range',
    ]);
  });
});

it.each([
  ['Web-1.example.com', 'web-1'],
  ['__', 'node'],
  ['a_b', 'a-b'],
])('defaultName converts host name %s to node name %s', (host, name) => {
  expect(defaultName(host)).toBe(name);
});

it.each([
  [{ XDG_STATE_HOME: '/x', HOME: '/home/a' }, '/x/cloudless/agent-n'],
  // the XDG Base Directory Specification treats an empty variable as unset
  [{ XDG_STATE_HOME: '', HOME: '/home/a' }, '/home/a/.local/state/cloudless/agent-n'],
  [{ HOME: '/home/a' }, '/home/a/.local/state/cloudless/agent-n'],
])('defaultDataDir returns, for the environment %j, %s', (env, directory) => {
  expect(defaultDataDir(env, 'n')).toBe(directory);
});
