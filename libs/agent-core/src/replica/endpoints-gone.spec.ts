import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { settle } from '@cloudless/base/testing';
import { aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';

describe('a stop order that waits for network proxies', () => {
  const start = async (preStopMs = 0): Promise<AgentTestBed> => {
    const bed = new AgentTestBed();
    await bed.start();
    const preStopDelay = durationFromMs(preStopMs);
    bed.coordinator.sendOrder(aStartOrder({ spec: { preStopDelay } }));
    await settle();
    return bed;
  };
  const stop = (bed: AgentTestBed, awaitGoneMs: number): void =>
    bed.coordinator.sendOrder(aStopOrder({ awaitGoneMs }));
  const sendGone = async (bed: AgentTestBed, ...replicaIds: string[]): Promise<void> => {
    bed.coordinator.send({
      case: 'endpointsGone',
      value: { $typeName: 'cloudless.api.EndpointsGone', replicaIds },
    });
    await settle();
  };
  const countRunning = async (bed: AgentTestBed): Promise<number> =>
    (await bed.runtime.list()).filter(({ phase }) => phase === 'running').length;

  it('stops the container when EndpointsGone names the replica, and not before', async () => {
    const bed = await start();
    stop(bed, 5_000);
    await bed.clock.advance(4_000);
    expect(await countRunning(bed)).toBe(1);
    expect(bed.summarizeReport()).toMatchObject({ phase: 'STOPPING', ready: false });
    await sendGone(bed, 'db-1');
    expect(await countRunning(bed)).toBe(1);
    await sendGone(bed, 'db-1', 'web-1');
    await bed.clock.advance(0);
    expect(await countRunning(bed)).toBe(0);
  });

  it('sees an EndpointsGone that follows its order without a pause', async () => {
    const bed = await start();
    stop(bed, 5_000);
    await sendGone(bed, 'web-1');
    await bed.clock.advance(0);
    expect(await countRunning(bed)).toBe(0);
  });

  it.each([
    { awaited: '5 s as ordered', awaitGoneMs: 5_000, waitsMs: 5_000 },
    { awaited: '5 s although 1 h is ordered', awaitGoneMs: 3_600_000, waitsMs: 5_000 },
  ])(
    'stops the container without EndpointsGone after $awaited',
    async ({ awaitGoneMs, waitsMs }) => {
      const bed = await start();
      stop(bed, awaitGoneMs);
      await settle();
      await bed.clock.advance(waitsMs - 1);
      expect(await countRunning(bed)).toBe(1);
      await bed.clock.advance(1);
      expect(await countRunning(bed)).toBe(0);
    },
  );

  it('begins the pre-stop delay with EndpointsGone', async () => {
    const bed = await start(2_000);
    stop(bed, 5_000);
    await settle();
    await bed.clock.advance(1_000);
    await sendGone(bed, 'web-1');
    await bed.clock.advance(1_999);
    expect(await countRunning(bed)).toBe(1);
    await bed.clock.advance(1);
    expect(await countRunning(bed)).toBe(0);
  });

  it('does not begin the pre-stop delay again with a second EndpointsGone', async () => {
    const bed = await start(2_000);
    stop(bed, 5_000);
    await sendGone(bed, 'web-1');
    await bed.clock.advance(1_500);
    await sendGone(bed, 'web-1');
    await bed.clock.advance(500);
    expect(await countRunning(bed)).toBe(0);
  });

  it('ignores EndpointsGone while no stop is ordered', async () => {
    const bed = await start();
    await sendGone(bed, 'web-1');
    await bed.clock.advance(60_000);
    expect(await countRunning(bed)).toBe(1);
  });
});
