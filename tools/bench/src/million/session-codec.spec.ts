import { create, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { AgentMessageSchema, CoordinatorMessageSchema, MessageWriter } from '@cloudless/api';
import {
  decodeCoordinatorMessage,
  encodeInventoryMessage,
  encodeReportMessage,
  type LightReport,
} from './session-codec.js';

const arbText = fc.oneof(fc.constant(''), fc.string({ unit: 'grapheme', maxLength: 40 }));
const arbRevision = fc.bigInt({ min: 0n, max: 2n ** 53n });
const arbVersion = fc.nat({ max: 2 ** 31 - 1 });
const arbOrder = fc.record({
  epoch: arbRevision,
  orderRevision: arbRevision,
  replicaId: arbText,
  workloadUid: arbText,
  order: fc.oneof(
    fc.record({
      case: fc.constant('start' as const),
      value: fc.record({
        namespace: arbText,
        workload: arbText,
        version: arbVersion,
        slot: arbVersion,
        spec: fc.record({ command: fc.array(arbText, { maxLength: 2 }) }),
        stopAfter: fc.record({ seconds: arbRevision }),
      }),
    }),
    fc.record({
      case: fc.constant('stop' as const),
      value: fc.record({ preStopDelay: fc.record({ seconds: arbRevision }) }),
    }),
    fc.record({ case: fc.constant('forget' as const), value: fc.constant({}) }),
  ),
});
const arbReport: fc.Arbitrary<LightReport> = fc.record(
  {
    replicaId: arbText,
    workloadUid: arbText,
    orderRevision: arbRevision,
    phase: fc.nat({ max: 6 }),
    ready: fc.boolean(),
    forgotten: fc.boolean(),
    container: fc.record({
      pid: fc.nat(),
      startedAtMs: fc.integer({ min: 1, max: 4_000_000_000_000 }),
    }),
  },
  { requiredKeys: ['replicaId', 'workloadUid', 'orderRevision', 'phase', 'ready', 'forgotten'] },
);

const writer = new MessageWriter();

const toInit = ({ container, ...report }: LightReport) => ({
  ...report,
  ...(container && {
    containerId: `process-${report.replicaId}`,
    container: {
      pid: container.pid,
      runtime: 'process',
      startedAt: {
        seconds: BigInt(Math.floor(container.startedAtMs / 1_000)),
        nanos: (container.startedAtMs % 1_000) * 1_000_000,
      },
    },
  }),
});

describe('decodeCoordinatorMessage', () => {
  it('reads what an agent without a runtime needs of each order', () => {
    fc.assert(
      fc.property(arbOrder, (value) => {
        const message = create(CoordinatorMessageSchema, { message: { case: 'order', value } });
        const { replicaId, workloadUid, orderRevision, order } = value;
        expect(decodeCoordinatorMessage(toBinary(CoordinatorMessageSchema, message)).order).toEqual(
          {
            replicaId,
            workloadUid,
            orderRevision,
            kind: order.case,
            version: order.case === 'start' ? order.value.version : 0,
          },
        );
      }),
    );
  });

  it.each<MessageInitShape<typeof CoordinatorMessageSchema>>([
    { message: { case: 'welcome', value: { epoch: 7n } } },
    { message: { case: 'admitted', value: {} } },
    { message: { case: 'reconnectTimes', value: { reconnectSpread: { seconds: 3n } } } },
    {},
  ])('returns every other message as a whole: %j', (init) => {
    const message = create(CoordinatorMessageSchema, init);
    expect(decodeCoordinatorMessage(toBinary(CoordinatorMessageSchema, message))).toEqual({
      message: message.message,
    });
  });

  it('rejects an order without a kind', () => {
    const message = create(CoordinatorMessageSchema, {
      message: { case: 'order', value: { replicaId: 'web-1' } },
    });
    expect(() => decodeCoordinatorMessage(toBinary(CoordinatorMessageSchema, message))).toThrow(
      'order of an unknown kind for web-1',
    );
  });
});

describe('encodeReportMessage and encodeInventoryMessage', () => {
  it('encodes a report as toBinary does', () => {
    fc.assert(
      fc.property(arbReport, (report) => {
        const message = create(AgentMessageSchema, {
          message: { case: 'report', value: toInit(report) },
        });
        expect(Buffer.from(encodeReportMessage(writer, report))).toEqual(
          Buffer.from(toBinary(AgentMessageSchema, message)),
        );
      }),
    );
  });

  it('encodes an inventory as toBinary does', () => {
    fc.assert(
      fc.property(fc.array(arbReport, { maxLength: 5 }), fc.boolean(), (reports, last) => {
        const message = create(AgentMessageSchema, {
          message: { case: 'inventory', value: { replicas: reports.map(toInit), last } },
        });
        expect(Buffer.from(encodeInventoryMessage(writer, reports, last))).toEqual(
          Buffer.from(toBinary(AgentMessageSchema, message)),
        );
      }),
    );
  });
});
