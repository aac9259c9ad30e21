import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import {
  CoordinatorMessageSchema,
  DIRECT_HEAD_BYTES,
  ForgetOrderSchema,
  OrderSchema,
  StartOrderSchema,
  StopOrderSchema,
  WorkloadSpecSchema,
  type Order,
} from '@cloudless/api';
import { definedFields } from '@cloudless/base';
import { createOrderMessage, encodeDirectOrder } from './order-encoder.js';

const encodeGenerally = (order: Order): Uint8Array =>
  toBinary(
    CoordinatorMessageSchema,
    create(CoordinatorMessageSchema, { message: { case: 'order', value: order } }),
  );
const encode = (order: Order): Uint8Array =>
  toBinary(CoordinatorMessageSchema, createOrderMessage(order));

const arbText = fc.oneof(fc.string(), fc.string({ unit: 'binary', maxLength: 200 }));
const arbInt = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const arbInt64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const arbDuration = fc.option(fc.integer().map(durationFromMs), { nil: undefined });
const arbSpec = fc.option(
  fc
    .record({
      image: arbText,
      command: fc.array(arbText),
      env: fc.dictionary(fc.string(), fc.string()),
    })
    .map((init) => create(WorkloadSpecSchema, init)),
  { nil: undefined },
);
const arbStart = fc
  .record({ namespace: arbText, workload: arbText, version: arbInt, slot: arbInt })
  .chain((init) =>
    fc.tuple(arbSpec, arbDuration).map(([spec, stopAfter]) => ({
      case: 'start' as const,
      value: create(StartOrderSchema, { ...init, ...definedFields({ spec, stopAfter }) }),
    })),
  );
const arbStop = fc
  .tuple(arbText, arbDuration, arbDuration, arbDuration)
  .map(([reason, preStopDelay, gracePeriod, awaitEndpointsGone]) => ({
    case: 'stop' as const,
    value: create(StopOrderSchema, {
      reason,
      ...definedFields({ preStopDelay, gracePeriod, awaitEndpointsGone }),
    }),
  }));
const arbForget = fc.constant({ case: 'forget' as const, value: create(ForgetOrderSchema) });
const arbOrder = fc
  .record({
    epoch: arbInt64,
    orderRevision: arbInt64,
    replicaId: arbText,
    workloadUid: arbText,
    order: fc.oneof(arbStart, arbStop, arbForget, fc.constant({ case: undefined })),
  })
  .map((init) => create(OrderSchema, init));

describe('an encoded order', () => {
  it('has the bytes of the generic encoder, also a second time and for a direct send', () => {
    fc.assert(
      fc.property(arbOrder, (order) => {
        const bytes = encodeGenerally(order);
        const direct = encodeDirectOrder(order).subarray(DIRECT_HEAD_BYTES);
        const encoded = [encode(order), direct, encode(order)];
        expect(encoded.map((own) => Buffer.compare(own, bytes))).toEqual([0, 0, 0]);
      }),
    );
  });

  it('keeps fields that this version does not know', () => {
    const order = create(OrderSchema, { replicaId: 'a', order: { case: 'stop', value: {} } });
    order.$unknown = [{ no: 99, wireType: 0, data: new Uint8Array([1]) }];
    const { message } = fromBinary(CoordinatorMessageSchema, encode(order));
    expect((message.value as Order).$unknown).toHaveLength(1);
  });

  it('has an encoder for every field', () => {
    const names = [OrderSchema, StartOrderSchema, StopOrderSchema, ForgetOrderSchema].map(
      ({ fields }) => fields.map(({ name }) => name).join(' '),
    );
    expect(names).toEqual([
      'epoch order_revision replica_id workload_uid start stop forget',
      'namespace workload version slot spec stop_after',
      'pre_stop_delay grace_period reason await_endpoints_gone',
      '',
    ]);
  });
});
