import { create } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  EndpointRecordSchema,
  ServiceRecordSchema,
  WorkloadRecordSchema,
} from '@cloudless/api/store';
import { selectsWorkload } from '../network/service-endpoints.js';
import { toNameKeyId, toServiceKeyId, type RecordKind, type RecordOf } from '../records/records.js';
import { IndexedView } from './view.js';

interface Write {
  readonly kind: RecordKind;
  readonly id: string;
  readonly value: RecordOf<RecordKind> | undefined;
}

const namespace = fc.constantFrom('a', 'b');
const name = fc.constantFrom('web', 'api', 'db');
const labels = fc.dictionary(fc.constantFrom('app', 'tier'), fc.constantFrom('x', 'y'), {
  maxKeys: 2,
});
const optional = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined });

const arbWorkload: fc.Arbitrary<readonly Write[]> = fc
  .tuple(namespace, name, optional(labels))
  .map(([space, workload, found]) => {
    const uid = `${space}-${workload}`;
    const record = found && { uid, namespace: space, name: workload, spec: { labels: found } };
    return [
      { kind: 'workload', id: uid, value: record && create(WorkloadRecordSchema, record) },
      {
        kind: 'name',
        id: toNameKeyId(space, workload),
        value: record && create(WorkloadRecordSchema, { uid }),
      },
    ];
  });
const arbService: fc.Arbitrary<readonly Write[]> = fc
  .tuple(
    namespace,
    name,
    optional(fc.record({ uid: fc.constantFrom('1', '2'), workload: fc.option(name), labels })),
  )
  .map(([space, service, found]) => [
    {
      kind: 'service',
      id: toServiceKeyId(space, service),
      value:
        found &&
        create(ServiceRecordSchema, {
          namespace: space,
          name: service,
          uid: found.uid,
          spec: found.workload === null ? { selector: found.labels } : { workload: found.workload },
        }),
    },
  ]);
const arbEndpoint: fc.Arbitrary<readonly Write[]> = fc
  .tuple(namespace, name, fc.constantFrom('e1', 'e2'), optional(fc.constantFrom('1', '2')))
  .map(([space, service, id, uid]) => [
    {
      kind: 'endpoint',
      id: `${toServiceKeyId(space, service)}/${id}`,
      value: uid && create(EndpointRecordSchema, { serviceUid: uid, endpoint: { id } }),
    } as Write,
  ]);

const uidsOf = (records: Iterable<{ readonly value: { readonly uid: string } }>) =>
  [...records].map(({ value }) => value.uid).sort();

describe('services in the view', () => {
  it('finds selected workloads, selecting services and endpoints as a scan of all records does', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(arbWorkload, arbService, arbEndpoint), { maxLength: 40 }),
        (changes) => {
          const view = new IndexedView();
          for (const { kind, id, value } of changes.flat())
            view.apply(kind, id, value && { value: value as never, revision: 1n });
          const services = [...view.services()];
          const workloads = [...view.workloads()];
          for (const { value: workload } of workloads) {
            const expected = services.filter(({ value }) => selectsWorkload(value, workload));
            expect(uidsOf(view.servicesSelecting(workload))).toEqual(uidsOf(expected));
          }
          for (const { value: service } of services) {
            const expected = workloads.filter(({ value }) => selectsWorkload(service, value));
            expect(uidsOf(view.workloadsSelectedBy(service))).toEqual(uidsOf(expected));
            const key = toServiceKeyId(service.namespace, service.name);
            const endpoints = [...view.externalEndpoints()].flatMap(([id, { value }]) =>
              id.startsWith(`${key}/`) && value.serviceUid === service.uid ? [value] : [],
            );
            const found = [...view.externalEndpointsOf(key)].map(({ value }) => value);
            expect(new Set(found)).toEqual(new Set(endpoints));
          }
          const keys = [...view.servicesByName()].map(({ value }) =>
            toServiceKeyId(value.namespace, value.name),
          );
          expect(keys).toEqual([...keys].sort());
          expect(keys).toHaveLength(services.length);
          expect([...view.servicesByName(keys[0])]).toHaveLength(Math.max(0, keys.length - 1));
        },
      ),
      { numRuns: 200 },
    );
  });
});
