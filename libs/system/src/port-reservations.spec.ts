import { PortReservations } from './port-reservations.js';

/** Numbers that no network has, so that nothing else on this machine reserves them. */
let last = 100_000 + process.pid * 10;
const aPort = (): number => (last += 1);

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

describeLinux('a port of this machine', () => {
  it('is reserved by one holder at a time', async () => {
    const [port, first, second] = [aPort(), aHolder(), aHolder()];
    expect([await first.take(port, 'tcp'), await second.take(port, 'tcp'), await first.take(port, 'tcp')]).toEqual([
      ...[true, false, false],
    ]);
    first.release(port, 'tcp');
    expect(await second.take(port, 'tcp')).toBe(true);
  });

  it('is reserved by exactly one of many that ask at once', async () => {
    const port = aPort();
    const answers = await Promise.all(Array.from({ length: 20 }, () => aHolder().take(port, 'udp')));
    expect(answers.filter((isTaken) => isTaken)).toHaveLength(1);
  });

  it('is another one for each protocol and number', async () => {
    const [port, next, first, second] = [aPort(), aPort(), aHolder(), aHolder()];
    expect([await first.take(port, 'tcp'), await second.take(port, 'udp'), await second.take(next, 'tcp')]).toEqual([
      ...[true, true, true],
    ]);
  });

  it('stays with its holder when somebody releases it who does not hold it', async () => {
    const [port, first, second] = [aPort(), aHolder(), aHolder()];
    await first.take(port, 'tcp');
    second.release(port, 'tcp');
    expect(await second.take(port, 'tcp')).toBe(false);
  });

  it('is released with all that its holder has', async () => {
    const [ports, first, second] = [[aPort(), aPort()], aHolder(), aHolder()];
    for (const port of ports) await first.take(port, 'tcp');
    first.releaseAll();
    for (const port of ports) expect(await second.take(port, 'tcp')).toBe(true);
  });
});
