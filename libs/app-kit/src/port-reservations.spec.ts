import { PortReservations } from './port-reservations.js';

/** Numbers above 65535, which no other program reserves. */
let lastPort = 100_000 + process.pid * 10;
const nextPort = (): number => (lastPort += 1);

const opened: PortReservations[] = [];
function aHolder(): PortReservations {
  const holder = new PortReservations();
  opened.push(holder);
  return holder;
}
afterEach(() => {
  for (const holder of opened.splice(0)) holder.releaseAll();
});

const describeLinux = process.platform === 'linux' ? describe : describe.skip;

describeLinux('PortReservations', () => {
  it('reserves a port for one holder at a time', async () => {
    const [port, first, second] = [nextPort(), aHolder(), aHolder()];
    expect([
      await first.reserve(port, 'tcp'),
      await second.reserve(port, 'tcp'),
      await first.reserve(port, 'tcp'),
    ]).toEqual([...[true, false, false]]);
    first.release(port, 'tcp');
    expect(await second.reserve(port, 'tcp')).toBe(true);
  });

  it('reserves a port for exactly one of many holders that call reserve at the same time', async () => {
    const port = nextPort();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => aHolder().reserve(port, 'udp')),
    );
    expect(answers.filter((isReserved) => isReserved)).toHaveLength(1);
  });

  it('reserves the same number for another protocol, and another number, independently', async () => {
    const [port, next, first, second] = [nextPort(), nextPort(), aHolder(), aHolder()];
    expect([
      await first.reserve(port, 'tcp'),
      await second.reserve(port, 'udp'),
      await second.reserve(next, 'tcp'),
    ]).toEqual([...[true, true, true]]);
  });

  it('ignores a release by a holder that does not have the port', async () => {
    const [port, first, second] = [nextPort(), aHolder(), aHolder()];
    await first.reserve(port, 'tcp');
    second.release(port, 'tcp');
    expect(await second.reserve(port, 'tcp')).toBe(false);
  });

  it('leaves no port reserved after concurrent calls of reserve, release, reserve and then releaseAll', async () => {
    const [port, first, second] = [nextPort(), aHolder(), aHolder()];
    const reserves = [first.reserve(port, 'tcp')];
    first.release(port, 'tcp');
    reserves.push(first.reserve(port, 'tcp'));
    await Promise.all(reserves);
    first.releaseAll();
    expect(await second.reserve(port, 'tcp')).toBe(true);
  });

  it('releases all ports of a holder with releaseAll', async () => {
    const [ports, first, second] = [[nextPort(), nextPort()], aHolder(), aHolder()];
    for (const port of ports) await first.reserve(port, 'tcp');
    first.releaseAll();
    for (const port of ports) expect(await second.reserve(port, 'tcp')).toBe(true);
  });
});
