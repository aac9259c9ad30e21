import { createClient, type Client } from '@connectrpc/connect';
import fc from 'fast-check';
import { NetworkService, RouteCondition_Type as ConditionType, type Route } from '@cloudless/api';
import { ApiTestBed } from '../../testing/api-test-bed.js';

const rules = [{ service: 'web', port: '80' }];

let bed: ApiTestBed;
let client: Client<typeof NetworkService>;

beforeEach(async () => {
  bed = await ApiTestBed.open();
  client = createClient(NetworkService, bed.transport);
});
afterEach(() => bed.stop());

const conditionsOf = ({ status }: Route): readonly string[] =>
  (status?.conditions ?? []).map(
    ({ type, holds, reason, message }) =>
      `${ConditionType[type]} ${holds}${holds ? '' : ` ${reason}: ${message}`}`,
  );

describe('CreateRoute', () => {
  it('fills in defaults, and writes one audit record and one event', async () => {
    const route = await client.createRoute({
      name: 'shop',
      spec: { hosts: ['shop.example.com'], rules: [{ ...rules[0], pathPrefix: '/cart/' }] },
      labels: { tier: 'front' },
    });
    expect(route).toMatchObject({
      ...{ namespace: 'default', name: 'shop', generation: 1n, labels: { tier: 'front' } },
      spec: {
        rules: [{ pathPrefix: '/cart', service: 'web', port: '80', retries: 1 }],
        limits: { maxHeaderBytes: 16_384 },
      },
    });
    expect(await client.getRoute({ name: 'shop' })).toEqual(route);
    expect(bed.auditRecords).toEqual(['CreateRoute ok']);
    expect(bed.events('RouteCreated')[0]?.message).toBe('route default/shop was created');
  });

  it('returns the stored response for a repeated request id', async () => {
    const request = { name: 'shop', spec: { rules }, requestId: 'r1' };
    const first = await client.createRoute(request);
    expect(await client.createRoute(request)).toEqual(first);
    expect(bed.events('RouteCreated')).toHaveLength(1);
  });

  it('refuses a second route of the same name', async () => {
    await client.createRoute({ name: 'shop', spec: { rules } });
    await expect(
      client.createRoute({ name: 'shop', spec: { hosts: ['a.b'], rules } }),
    ).rejects.toThrow('[already_exists] route "default/shop" already exists; update it');
  });

  it('refuses an invalid spec', async () => {
    await expect(
      client.createRoute({ name: 'a', spec: { hosts: ['A.b'], rules } }),
    ).rejects.toThrow('[invalid_argument] spec.hosts[0]: "A.b" is not a host name');
  });

  it.each([
    { left: [], right: [], paths: ['/', '/'], claim: 'every host with path prefix /' },
    {
      left: ['a.b'],
      right: ['c.d', 'a.b'],
      paths: ['/x', '/x/'],
      claim: 'host a.b with path prefix /x',
    },
    { left: ['*.b'], right: ['*.b'], paths: ['/', ''], claim: 'host *.b with path prefix /' },
    { left: ['a.b'], right: [], paths: ['/', '/'], claim: undefined },
    { left: ['a.b'], right: ['*.b'], paths: ['/', '/'], claim: undefined },
    { left: ['a.b'], right: ['a.b'], paths: ['/x', '/x/y'], claim: undefined },
  ])(
    'compares hosts $left and $right with path prefixes $paths',
    async ({ left, right, paths, claim }) => {
      const toSpec = (hosts: string[], pathPrefix = '') => ({
        hosts,
        rules: [{ ...rules[0], pathPrefix }],
      });
      await client.createRoute({ name: 'first', spec: toSpec(left, paths[0]) });
      const second = client.createRoute({
        namespace: 'other',
        name: 'second',
        spec: toSpec(right, paths[1]),
      });
      if (claim === undefined) await expect(second).resolves.toMatchObject({ name: 'second' });
      else
        await expect(second).rejects.toThrow(
          `[failed_precondition] route "default/first" answers ${claim} already`,
        );
    },
  );

  it('never commits two routes with a common host and path prefix, also when changed at once', async () => {
    const host = fc.constantFrom('a.b', '*.b', 'c.d');
    const path = fc.constantFrom('/', '/x', '/x/', '/y');
    const spec = fc.record({
      hosts: fc.uniqueArray(host),
      rules: fc.uniqueArray(path, {
        minLength: 1,
        selector: (text) => text.replace(/(.)\/$/, '$1'),
      }),
    });
    const change = fc.record({ name: fc.constantFrom('r1', 'r2', 'r3', 'r4'), spec });
    await fc.assert(
      fc.asyncProperty(fc.array(change, { maxLength: 8 }), async (changes) => {
        await Promise.allSettled(
          changes.map(async ({ name, spec: { hosts, rules: paths } }) => {
            const wanted = {
              hosts,
              rules: paths.map((pathPrefix) => ({ ...rules[0], pathPrefix })),
            };
            await client
              .createRoute({ name, spec: wanted })
              .catch(() =>
                client.updateRoute({ name, spec: wanted, updateMask: { paths: ['*'] } }),
              );
          }),
        );
        const { routes } = await client.listRoutes({});
        const claims = routes.flatMap(({ spec }) => {
          const hosts = spec?.hosts.length === 0 ? ['every'] : (spec?.hosts ?? []);
          return hosts.flatMap((each) =>
            (spec?.rules ?? []).map(({ pathPrefix }) => `${each} ${pathPrefix}`),
          );
        });
        expect(new Set(claims).size).toBe(claims.length);
        for (const { name } of routes) await client.deleteRoute({ name });
      }),
      { numRuns: 40 },
    );
  });
});

describe('UpdateRoute', () => {
  it('changes the fields that are present, counts generations, and ignores an equal change', async () => {
    const first = await client.createRoute({ name: 'shop', spec: { hosts: ['a.b'], rules } });
    const second = await client.updateRoute({ name: 'shop', spec: { hosts: ['c.d'] } });
    expect(second).toMatchObject({
      ...{ uid: first.uid, generation: 2n },
      spec: { hosts: ['c.d'], rules: [{ service: 'web' }] },
    });
    expect(await client.updateRoute({ name: 'shop', spec: { hosts: ['c.d'] } })).toEqual(second);
    expect(bed.events('RouteUpdated')).toHaveLength(1);
  });

  it('removes fields that the mask names, and labels with an empty value', async () => {
    const tls = { certificateFile: '/a.pem', keyFile: '/a.key' };
    const spec = { rules, tls, redirectToHttps: true };
    await client.createRoute({ name: 'shop', spec, labels: { a: '1', b: '2' } });
    const updateMask = { paths: ['tls', 'redirect_to_https'] };
    const route = await client.updateRoute({ name: 'shop', updateMask, labels: { a: '' } });
    expect(route.spec?.tls).toBeUndefined();
    expect(route.labels).toEqual({ b: '2' });
  });

  it('refuses a change that makes the route invalid or takes the host of another route', async () => {
    await client.createRoute({ name: 'shop', spec: { hosts: ['a.b'], rules } });
    await client.createRoute({ name: 'blog', spec: { hosts: ['c.d'], rules } });
    await expect(
      client.updateRoute({ name: 'shop', spec: { redirectToHttps: true } }),
    ).rejects.toThrow('spec.redirect_to_https: needs spec.tls');
    await expect(client.updateRoute({ name: 'blog', spec: { hosts: ['a.b'] } })).rejects.toThrow(
      'route "default/shop" answers host a.b',
    );
    await expect(client.updateRoute({ name: 'blog', expectedGeneration: 7n })).rejects.toThrow(
      '[aborted] route "default/blog" is at generation 1, not 7',
    );
  });
});

describe('ListRoutes and DeleteRoute', () => {
  it('lists by namespace, label and service, page by page', async () => {
    const create = (namespace: string, name: string, service: string) =>
      client.createRoute({
        ...{ namespace, name, labels: { service } },
        spec: { hosts: [`${name}.${namespace}`], rules: [{ service, port: '80' }] },
      });
    await create('b', 'r1', 'web');
    await create('a', 'r2', 'web');
    await create('a', 'r1', 'api');
    const list = async (request: Parameters<typeof client.listRoutes>[0]) =>
      (await client.listRoutes(request)).routes.map(
        ({ namespace, name }) => `${namespace}/${name}`,
      );
    expect(await list({})).toEqual(['a/r1', 'a/r2', 'b/r1']);
    expect(await list({ namespace: 'a' })).toEqual(['a/r1', 'a/r2']);
    expect(await list({ service: 'web' })).toEqual(['a/r2', 'b/r1']);
    expect(await list({ labelSelector: 'service=api' })).toEqual(['a/r1']);
    const first = await client.listRoutes({ pageSize: 2 });
    const pageToken = first.nextPageToken;
    expect(await list({ pageSize: 2, pageToken })).toEqual(['b/r1']);
  });

  it('deletes a route with an event, and frees its host', async () => {
    await client.createRoute({ name: 'shop', spec: { hosts: ['a.b'], rules } });
    await client.deleteRoute({ name: 'shop' });
    expect(bed.events('RouteDeleted')[0]?.message).toBe('route default/shop was deleted');
    await expect(client.getRoute({ name: 'shop' })).rejects.toThrow(
      '[not_found] route "default/shop"',
    );
    await expect(client.deleteRoute({ name: 'shop' })).rejects.toThrow('[not_found]');
    await client.createRoute({ name: 'blog', spec: { hosts: ['a.b'], rules } });
  });
});

describe('conditions of a route', () => {
  const withoutProxy =
    'NODES_SELECTED false NoNetworkProxy: no node that the route selects has a network proxy; start agents with --network on or auto';

  it('say which services do not exist, and nothing of their ports', async () => {
    const route = await client.createRoute({ name: 'shop', spec: { rules } });
    expect(conditionsOf(route)).toEqual([
      'SERVICES_EXIST false ServiceNotFound: namespace default has no service web',
      withoutProxy,
    ]);
  });

  it('say which ports a service lacks, and hold once the service has the port', async () => {
    await client.createService({ name: 'web', spec: { ports: [{ name: 'http', port: 8080 }] } });
    const route = await client.createRoute({ name: 'shop', spec: { rules } });
    expect(conditionsOf(route)).toEqual([
      'SERVICES_EXIST true',
      'PORTS_EXIST false PortNotFound: service web has no TCP port 80; it has http (8080)',
      withoutProxy,
    ]);
    const port = 'http';
    const changed = await client.updateRoute({
      name: 'shop',
      spec: { rules: [{ service: 'web', port }] },
    });
    expect(conditionsOf(changed).slice(0, 2)).toEqual(['SERVICES_EXIST true', 'PORTS_EXIST true']);
  });

  it('say that a service stands for a name outside the cluster', async () => {
    await client.createService({ name: 'web', spec: { externalName: 'www.example.com' } });
    const route = await client.createRoute({ name: 'shop', spec: { rules } });
    expect(conditionsOf(route)[1]).toBe(
      'PORTS_EXIST false PortNotFound: service web stands for www.example.com outside the cluster and has no ports',
    );
  });

  it('say that no node has the labels of the selector', async () => {
    const spec = { rules, nodeSelector: { ingress: 'true' } };
    const route = await client.createRoute({ name: 'shop', spec });
    expect(conditionsOf(route).at(-1)).toBe(
      'NODES_SELECTED false NoNodeSelected: no node has the labels ingress=true',
    );
  });
});
