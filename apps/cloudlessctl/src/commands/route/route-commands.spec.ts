import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  RouteCondition_Type,
  RouteSchema,
  type CreateRouteRequest,
  type UpdateRouteRequest,
} from '@cloudless/api';
import { NOW_MS, runCli, type CliOptions } from '../../testing/run-cli.js';

const SHOP = create(RouteSchema, {
  ...{ namespace: 'default', name: 'shop', uid: 'aa' },
  createdAt: timestampFromMs(NOW_MS - 60_000),
  spec: {
    hosts: ['shop.example.com'],
    rules: [{ pathPrefix: '/', service: 'web', port: '80', timeout: { seconds: 60n }, retries: 1 }],
    tls: { certificateFile: '/etc/tls/shop.pem', keyFile: '/etc/tls/shop.key' },
    redirectToHttps: true,
    limits: { maxHeaderBytes: 16_384 },
  },
  status: {
    conditions: [
      {
        type: RouteCondition_Type.SERVICES_EXIST,
        reason: 'ServiceNotFound',
        message: 'namespace default has no service web',
      },
      { type: RouteCondition_Type.NODES_SELECTED, holds: true },
    ],
  },
});

const network: CliOptions['network'] = {
  getRoute: ({ name }) => {
    if (name === 'shop') return SHOP;
    throw new ConnectError(`route "default/${name}" not found`, Code.NotFound);
  },
  listRoutes: () => ({ routes: [SHOP], nextPageToken: '', revision: 1n }),
};

describe('route create', () => {
  it.each<[string, string[], object]>([
    [
      'a host and a service',
      ['--host', 'shop.example.com', '--service', 'web:http'],
      { hosts: ['shop.example.com'], rules: [{ pathPrefix: '', service: 'web', port: 'http' }] },
    ],
    [
      'several rules with a timeout and retries',
      [
        '--service',
        'web:80',
        '--path',
        '/shop',
        '--rule',
        '/a=b=api:81',
        '--response-timeout',
        '5s',
        '--retries',
        '0',
      ],
      {
        rules: [
          { pathPrefix: '/shop', service: 'web', port: '80', timeout: { seconds: 5n }, retries: 0 },
          { pathPrefix: '/a=b', service: 'api', port: '81', timeout: { seconds: 5n }, retries: 0 },
        ],
      },
    ],
    [
      'TLS with a redirect, limits and nodes',
      [
        ...['--service', 'web:80', '--tls-certificate-file', '/a.pem', '--tls-key-file', '/a.key'],
        ...['--redirect-to-https', '--max-header-bytes', '2048', '--max-body-bytes', '10'],
        ...['--node-selector', 'ingress=true'],
      ],
      {
        tls: { certificateFile: '/a.pem', keyFile: '/a.key' },
        redirectToHttps: true,
        limits: { maxHeaderBytes: 2048, maxBodyBytes: 10n },
        nodeSelector: { ingress: 'true' },
      },
    ],
    [
      'TLS with the certificate of a secret',
      ['--service', 'web:80', '--tls-certificate-secret', 'shop-tls'],
      { tls: { certificateSecret: 'shop-tls', certificateFile: '', keyFile: '' } },
    ],
  ])('sends %s, and prints conditions that do not hold', async (_title, flags, spec) => {
    const requests: CreateRouteRequest[] = [];
    const result = await runCli(['route', 'create', 'shop', ...flags], {
      network: { createRoute: (request) => (requests.push(request), SHOP) },
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toBe(
      'route default/shop: created\nnote: namespace default has no service web\n',
    );
    expect(requests).toMatchObject([{ namespace: 'default', name: 'shop', spec }]);
  });

  it.each([
    [[], 'give a --service, such as --service web:80, or a --rule'],
    [['--service', 'web'], '--service: expected a service with its port'],
    [['--rule', 'web:80'], '--rule: expected prefix=name:port'],
    [['--path', '/a'], '--path is the path prefix of --service'],
    [['--service', 'web:80', '--tls-key-file', '/a'], 'belong together: give both'],
    [
      ['--tls-certificate-secret', 'a', '--tls-certificate-file', '/a', '--tls-key-file', '/a'],
      '--tls-certificate-secret excludes --tls-certificate-file and --tls-key-file',
    ],
    [
      ['--tls-certificate-secret', '', '--tls-key-file', '/a'],
      '--tls-certificate-secret excludes --tls-certificate-file and --tls-key-file',
    ],
    [['--service', 'web:80', '--node-selector', 'a-'], '--node-selector: expected key=value'],
  ])('refuses %j: %s', async (flags, message) => {
    const { exitCode, stderr } = await runCli(['route', 'create', 'shop', ...flags], { network });
    expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: expect.stringContaining(message) });
  });
});

describe('route update', () => {
  it('changes only what flags set', async () => {
    const requests: UpdateRouteRequest[] = [];
    const argv = ['route', 'update', 'shop', '--host', 'a.b', '--no-redirect-to-https'];
    const { exitCode } = await runCli([...argv, '--max-body-bytes', '5', '--label', 'tier-'], {
      network: { updateRoute: (request) => (requests.push(request), SHOP) },
    });
    expect(exitCode).toBe(0);
    expect(requests).toMatchObject([
      {
        ...{ namespace: 'default', name: 'shop', labels: { tier: '' } },
        updateMask: { paths: ['hosts', 'redirect_to_https', 'limits.max_body_bytes'] },
        spec: { hosts: ['a.b'], redirectToHttps: false, limits: { maxBodyBytes: 5n } },
      },
    ]);
  });

  it('removes TLS by empty names of both files', async () => {
    const requests: UpdateRouteRequest[] = [];
    const argv = ['route', 'update', 'shop', '--tls-certificate-file', '', '--tls-key-file', ''];
    await runCli(argv, {
      network: { updateRoute: (request) => (requests.push(request), SHOP) },
    });
    expect(requests[0]?.updateMask?.paths).toEqual(['tls']);
    expect(requests[0]?.spec?.tls).toBeUndefined();
  });

  it.each<[string, string, { certificateSecret: string } | undefined]>([
    ['replaces files by a secret', 'shop-tls', { certificateSecret: 'shop-tls' }],
    ['removes TLS by an empty name of the secret', '', undefined],
  ])('%s', async (_title, secret, tls) => {
    const requests: UpdateRouteRequest[] = [];
    const argv = ['route', 'update', 'shop', '--tls-certificate-secret', secret];
    await runCli(argv, {
      network: { updateRoute: (request) => (requests.push(request), SHOP) },
    });
    expect(requests[0]?.updateMask?.paths).toEqual(['tls']);
    const sent = requests[0]?.spec?.tls;
    expect(sent && { certificateSecret: sent.certificateSecret }).toEqual(tls);
    expect(sent?.certificateFile ?? '').toBe('');
  });

  it.each([
    [[], 'nothing to change'],
    [['--response-timeout', '5s'], '--response-timeout and --retries belong to rules'],
  ])('refuses %j: %s', async (flags, message) => {
    const { exitCode, stderr } = await runCli(['route', 'update', 'shop', ...flags], { network });
    expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: expect.stringContaining(message) });
  });
});

describe('route list, get, describe and delete', () => {
  it('list routes with the reasons of conditions that do not hold', async () => {
    const { stdout } = await runCli(['route', 'list'], { network });
    expect(stdout).toContain('shop.example.com');
    expect(stdout).toContain('/=web:80');
    expect(stdout).toContain('redirect');
    expect(stdout).toContain('ServiceNotFound');
  });

  it('name a similar route for one that does not exist', async () => {
    const { exitCode, stderr } = await runCli(['route', 'get', 'shpo'], { network });
    expect(exitCode).toBe(3);
    expect(stderr).toContain('did you mean shop?');
  });

  it('describe rules, files and conditions', async () => {
    const { stdout } = await runCli(['route', 'describe', 'shop'], { network });
    for (const text of [
      'default/shop',
      '/etc/tls/shop.pem',
      '16384 bytes',
      'no limit',
      'all nodes',
      'namespace default has no service web',
    ])
      expect(stdout).toContain(text);
  });

  it('describe the secret with the certificate, and why it cannot be served', async () => {
    const message = 'secret "default/shop-tls" does not permit the audience route/default.shop';
    const route = create(RouteSchema, {
      ...{ namespace: 'default', name: 'shop' },
      spec: { tls: { certificateSecret: 'shop-tls' } },
      status: {
        conditions: [
          { type: RouteCondition_Type.CERTIFICATE_USABLE, reason: 'AudienceNotPermitted', message },
        ],
      },
    });
    const { stdout } = await runCli(['route', 'describe', 'shop'], {
      network: { getRoute: () => route },
    });
    expect(stdout).toMatch(/^Certificate secret: +shop-tls$/m);
    expect(stdout).toMatch(/CertificateUsable +no +AudienceNotPermitted/);
    expect(stdout).toContain('route/default.shop');
    expect(stdout).not.toContain('Certificate file');
  });

  it('delete each named route', async () => {
    const names: string[] = [];
    const { exitCode, stdout } = await runCli(['route', 'delete', 'shop', 'prod/blog'], {
      network: {
        deleteRoute: ({ namespace, name }) => (names.push(`${namespace}/${name}`), {}),
      },
    });
    expect({ exitCode, stdout }).toEqual({
      exitCode: 0,
      stdout: 'route default/shop: deleted\nroute prod/blog: deleted\n',
    });
    expect(names.sort()).toEqual(['default/shop', 'prod/blog']);
  });
});
