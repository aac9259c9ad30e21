import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  NetworkEndpointEntrySchema,
  NetworkNodeEntrySchema,
  NetworkServiceEntrySchema,
  NetworkUpdateSchema,
} from '@cloudless/api';
import { NetworkModel, NO_CHANGES } from './network-model.js';

const aService = (name: string) =>
  create(NetworkServiceEntrySchema, { namespace: 'default', name, uid: `uid-${name}` });
const anEndpoint = (service: string, id: string, nodeId = 'n1') =>
  create(NetworkEndpointEntrySchema, {
    ...{ namespace: 'default', service, nodeId },
    id: `default/${service}/${id}`,
  });
const aNode = (id: string) => create(NetworkNodeEntrySchema, { id, alive: true });

describe('NetworkModel', () => {
  it('keeps what is known while everything is sent again, and drops the rest at the end', () => {
    const model = new NetworkModel();
    model.apply(
      create(NetworkUpdateSchema, {
        ...{ revision: 5n, reset: true, complete: true },
        services: [aService('a'), aService('b')],
        endpoints: [anEndpoint('a', '1'), anEndpoint('b', '1')],
        nodes: [aNode('n1'), aNode('n2')],
      }),
    );
    model.apply(
      create(NetworkUpdateSchema, { revision: 9n, reset: true, services: [aService('a')] }),
    );
    expect([...model.services.keys()]).toEqual(['default/a', 'default/b']);
    expect(model.revision).toBe(5n);
    const changes = model.apply(
      create(NetworkUpdateSchema, {
        ...{ revision: 9n, complete: true },
        endpoints: [anEndpoint('a', '1')],
        nodes: [aNode('n2')],
      }),
    );
    expect([...model.services.keys()]).toEqual(['default/a']);
    expect([...model.endpoints.keys()]).toEqual(['default/a/1']);
    expect([...model.nodes.keys()]).toEqual(['n2']);
    expect([...changes.removedEndpoints]).toEqual(['default/b/1']);
    expect(model.revision).toBe(9n);
  });

  it('keeps what it knows until everything was sent again, because the first updates may be older', () => {
    const model = new NetworkModel();
    const endpoints = [anEndpoint('a', '1')];
    const known = { services: [aService('a')], endpoints, nodes: [aNode('n1')] };
    model.apply(create(NetworkUpdateSchema, { reset: true, complete: true, ...known }));
    const older = [aNode('n2'), { ...aNode('n1'), alive: false }];
    const early = model.apply(create(NetworkUpdateSchema, { reset: true, nodes: older }));
    expect(early).toEqual(NO_CHANGES);
    expect([...model.nodes.values()]).toEqual(known.nodes);
    const removedNodes = ['n2'];
    model.apply(create(NetworkUpdateSchema, { complete: true, ...known, removedNodes }));
    expect([...model.nodes.values()]).toEqual(known.nodes);
  });

  it('asks for everything after a stream that ended while it sent everything', () => {
    const model = new NetworkModel();
    model.apply(create(NetworkUpdateSchema, { revision: 5n, reset: true, complete: true }));
    expect(model.resume.afterRevision).toBe(5n);
    model.apply(create(NetworkUpdateSchema, { revision: 9n, reset: true }));
    expect(model.resume.afterRevision).toBe(0n);
  });

  it('restores a snapshot without its revision', () => {
    const model = new NetworkModel();
    model.apply(
      create(NetworkUpdateSchema, {
        ...{ revision: 5n, reset: true, complete: true },
        settings: { serviceCidr: '10.96.0.0/16' },
        services: [aService('a')],
        endpoints: [anEndpoint('a', '1')],
      }),
    );
    const restored = new NetworkModel();
    restored.load(model.save());
    expect([...restored.endpointsOf('default/a').keys()]).toEqual(['default/a/1']);
    expect(restored.settings?.serviceCidr).toBe('10.96.0.0/16');
    expect(restored.resume.afterRevision).toBe(0n);
  });

  it('finds endpoints by service and by node after any sequence of changes', () => {
    const arbStep = fc.record({
      put: fc.boolean(),
      service: fc.constantFrom('a', 'b'),
      id: fc.constantFrom('1', '2', '3'),
      nodeId: fc.constantFrom('n1', 'n2', ''),
    });
    fc.assert(
      fc.property(fc.array(arbStep, { maxLength: 40 }), (steps) => {
        const model = new NetworkModel();
        for (const { put, service, id, nodeId } of steps) {
          const endpoint = anEndpoint(service, id, nodeId);
          model.apply(
            create(
              NetworkUpdateSchema,
              put ? { endpoints: [endpoint] } : { removedEndpoints: [endpoint.id] },
            ),
          );
        }
        const all = [...model.endpoints.values()];
        for (const service of ['a', 'b']) {
          const expected = all.filter((each) => each.service === service).map(({ id }) => id);
          expect([...model.endpointsOf(`default/${service}`).keys()].sort()).toEqual(
            expected.sort(),
          );
        }
        for (const nodeId of ['n1', 'n2']) {
          const expected = all.filter((each) => each.nodeId === nodeId);
          expect([...model.servicesOn(nodeId)].sort()).toEqual(
            [...new Set(expected.map(({ service }) => `default/${service}`))].sort(),
          );
        }
      }),
    );
  });
});
