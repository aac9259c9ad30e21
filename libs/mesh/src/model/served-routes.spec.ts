import { create } from '@bufbuild/protobuf';
import {
  NetworkRouteEntrySchema,
  NetworkServiceEntrySchema,
  NetworkUpdateSchema,
} from '@cloudless/api';
import { NetworkModel } from './network-model.js';
import { listServedRoutes } from './served-routes.js';

const aRoute = (name: string, selector: Record<string, string> = {}, nodeIds: string[] = []) =>
  create(NetworkRouteEntrySchema, {
    ...{ namespace: 'default', name, nodeIds },
    spec: {
      hosts: [`${name}.example.com`],
      rules: [
        { pathPrefix: '/', service: 'web', port: 'http', timeout: { seconds: 60n }, retries: 1 },
        { pathPrefix: '/a', service: 'none', port: '80', timeout: { seconds: 5n }, retries: 0 },
      ],
      limits: { maxHeaderBytes: 16_384, maxBodyBytes: 7n },
      nodeSelector: selector,
    },
  });
const web = create(NetworkServiceEntrySchema, {
  ...{ namespace: 'default', name: 'web' },
  spec: { ports: [{ name: 'http', port: 8080 }] },
});
const apply = (model: NetworkModel, update: object) =>
  model.apply(create(NetworkUpdateSchema, update));

describe('listServedRoutes', () => {
  it('lists the routes without node selector, and those that select the node', () => {
    const model = new NetworkModel();
    const routes = [
      aRoute('all'),
      aRoute('edge', { edge: 'true' }, ['n1']),
      aRoute('none', { a: 'b' }),
    ];
    apply(model, { complete: true, routes });
    expect([...listServedRoutes(model, 'n1').keys()]).toEqual(['default/all', 'default/edge']);
    expect([...listServedRoutes(model, 'n2').keys()]).toEqual(['default/all']);
  });

  it('resolves names of ports, and keeps a rule without service with the port 0', () => {
    const model = new NetworkModel();
    apply(model, { complete: true, routes: [aRoute('shop')] });
    const portsOf = () =>
      listServedRoutes(model, 'n1')
        .get('default/shop')
        ?.rules.map(({ port }) => port);
    expect(portsOf()).toEqual([0, 0]);
    apply(model, { complete: true, services: [web] });
    expect(portsOf()).toEqual([8080, 0]);
    expect(listServedRoutes(model, 'n1').get('default/shop')).toEqual({
      ...{ namespace: 'default', name: 'shop', hosts: ['shop.example.com'] },
      rules: [
        {
          ...{ pathPrefix: '/', port: 8080, timeoutMs: 60_000, retries: 1 },
          service: { namespace: 'default', name: 'web' },
        },
        {
          ...{ pathPrefix: '/a', port: 0, timeoutMs: 5_000, retries: 0 },
          service: { namespace: 'default', name: 'none' },
        },
      ],
      redirectToHttps: false,
      maxHeaderBytes: 16_384,
      maxBodyBytes: 7,
    });
  });
});

describe('certificate of a served route', () => {
  const certificate = { secretUid: 'uid-1', version: 3 };
  const files = { certificateFile: '/tls/web.crt', keyFile: '/tls/web.key' };
  it.each([
    { name: 'none', tls: undefined, certificate: undefined, expected: undefined },
    { name: 'files', tls: files, certificate: undefined, expected: files },
    {
      name: 'a secret with its newest version',
      ...{ tls: { certificateSecret: 'web-tls' }, certificate },
      expected: { secret: 'default/web-tls', version: certificate },
    },
    {
      name: 'a secret without a version',
      ...{ tls: { certificateSecret: 'web-tls' }, certificate: undefined },
      expected: { secret: 'default/web-tls' },
    },
  ])('is $name, also in the snapshot', ({ tls, certificate, expected }) => {
    const route = create(NetworkRouteEntrySchema, {
      ...{ namespace: 'default', name: 'shop' },
      spec: { ...(tls === undefined ? {} : { tls }) },
      ...(certificate === undefined ? {} : { certificate }),
    });
    const model = new NetworkModel();
    apply(model, { complete: true, routes: [route] });
    const restored = new NetworkModel();
    restored.load(model.save());
    for (const each of [model, restored])
      expect(listServedRoutes(each, 'n1').get('default/shop')?.tls).toEqual(expected);
  });

  it('follows an update that changes the version only', () => {
    const model = new NetworkModel();
    const put = (version: number) =>
      apply(model, {
        complete: true,
        routes: [
          {
            ...{ namespace: 'default', name: 'shop', certificate: { secretUid: 'uid-1', version } },
            spec: { tls: { certificateSecret: 'web-tls' } },
          },
        ],
      });
    put(1);
    expect([...put(2).routes]).toEqual(['default/shop']);
    expect(listServedRoutes(model, 'n1').get('default/shop')?.tls).toMatchObject({
      version: { version: 2 },
    });
  });
});

describe('routes of a NetworkModel', () => {
  it('are reported when they change, and removed by an update or by a complete set without them', () => {
    const model = new NetworkModel();
    const routes = [aRoute('a'), aRoute('b'), aRoute('c')];
    expect([...apply(model, { complete: true, routes }).routes]).toHaveLength(3);
    const removed = apply(model, { complete: true, removedRoutes: ['default/a', 'default/x'] });
    expect([...removed.routes]).toEqual(['default/a']);
    const copy = new NetworkModel();
    copy.load(model.save());
    expect([...copy.routes.keys()]).toEqual(['default/b', 'default/c']);
    apply(copy, { revision: 9n, reset: true, routes: [aRoute('c')] });
    expect(copy.routes.size).toBe(2);
    const changed = apply(copy, { revision: 9n, complete: true }).routes;
    expect([[...changed].sort(), [...copy.routes.keys()]]).toEqual([
      ['default/b', 'default/c'],
      ['default/c'],
    ]);
  });
});
