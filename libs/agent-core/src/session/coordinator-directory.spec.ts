import { CoordinatorDirectory, mergeKnown } from './coordinator-directory.js';

const A = 'https://10.0.0.1:8080';
const B = 'https://10.0.0.2:8080';
const C = 'https://10.0.0.3:8080';
const failed = { hadSession: false, isSilent: false, isUnreachable: false, nowMs: 0 };
const ended = { ...failed, hadSession: true };
const silent = { ...ended, isSilent: true, epoch: 7n };
const unreachable = { ...failed, isUnreachable: true };
const leads = (address: string, epoch = 7n, nowMs = 0) => ({
  ...failed,
  nowMs,
  leader: { address, epoch },
});

describe('CoordinatorDirectory', () => {
  it('dials the addresses one after the other until one has a session', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    expect(directory.current).toBe(A);
    const dials = [failed, failed, failed].map((outcome) => directory.next(outcome));
    expect(dials.map(({ address }) => address)).toEqual([B, C, A]);
    expect(dials.map(({ hasTriedAll }) => hasTriedAll)).toEqual([false, false, true]);
  });

  it('dials the addresses in the other order when it is reversed', () => {
    const directory = new CoordinatorDirectory([A, B, C], [], true);
    const dials = [failed, failed, failed].map((outcome) => directory.next(outcome).address);
    expect([A, ...dials]).toEqual([A, C, B, A]);
  });

  it('dials the same coordinator again after a session, which may only restart', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    directory.next(failed);
    expect(directory.next(ended)).toMatchObject({
      address: B,
      isRedirect: false,
      hasTriedAll: true,
    });
  });

  it('dials another coordinator after one that answered no ping', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    expect(directory.next(silent).address).toBe(B);
  });

  it('dials the leader that another coordinator names', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    expect(directory.next(leads(C))).toMatchObject({ address: C, isRedirect: true });
    expect(directory.next(ended).address).toBe(C);
  });

  it('follows a leader whose address is not configured, then goes on with its addresses', () => {
    const directory = new CoordinatorDirectory([A, B]);
    expect(directory.next(leads(C)).address).toBe(C);
    expect(directory.next(failed)).toMatchObject({ address: B, hasTriedAll: false });
  });

  it('dials every address in a round although a coordinator names a leader that is gone', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    const dials = [failed, leads(A), failed, failed].map((outcome) => directory.next(outcome));
    expect(dials.map(({ address }) => address)).toEqual([B, A, C, A]);
    expect(dials.map(({ hasTriedAll }) => hasTriedAll)).toEqual([false, false, false, true]);
  });

  it.each([
    ['in the epoch of the silent session', leads(A), { address: C, isRedirect: false }],
    ['in an older epoch', leads(A, 6n), { address: C, isRedirect: false }],
    ['in a newer epoch', leads(A, 8n), { address: A, isRedirect: true }],
    ['when its lease has ended since', leads(A, 7n, 6_000), { address: A, isRedirect: true }],
    ['when another leads', leads(C), { address: C, isRedirect: true }],
  ])('after a silent leader follows a hint only to a live one: %s', (_name, hint, next) => {
    const directory = new CoordinatorDirectory([A, B, C]);
    directory.next(silent);
    expect(directory.next(hint)).toMatchObject(next);
  });

  it('ignores a hint to a leader that was silent', () => {
    const directory = new CoordinatorDirectory([A, B]);
    expect(directory.next(leads(C)).address).toBe(C);
    expect(directory.next({ ...failed, isSilent: true }).address).toBe(B);
    expect(directory.next(leads(C)).address).toBe(A);
    expect(directory.next(leads(C, 8n)).address).toBe(C);
  });

  it('dials a silent coordinator in its turn, marked as silent for 6 s', () => {
    const directory = new CoordinatorDirectory([A, B]);
    directory.next(silent);
    expect(directory.next(failed)).toMatchObject({ address: A, wasSilent: true });
    directory.next(failed);
    expect(directory.next({ ...failed, nowMs: 6_000 })).toMatchObject({
      address: A,
      wasSilent: false,
    });
  });

  it('gives silent coordinators their full time when none answers: they are busy', () => {
    const directory = new CoordinatorDirectory([A, B]);
    directory.next(silent);
    const next = directory.next({ ...failed, isSilent: true });
    expect(next).toMatchObject({ address: A, wasSilent: false });
  });

  it('skips a named leader in the round after its silence', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    expect(directory.next(leads(B)).address).toBe(B);
    expect(directory.next({ ...failed, isSilent: true }).address).toBe(C);
  });

  it('reports the loss of the leader once, with the attempt that has shown it', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    const outcomes = [{ ...ended, epoch: 7n }, unreachable, unreachable, failed, unreachable];
    const losses = outcomes.map((outcome) => directory.next(outcome).hasLostLeader);
    expect(losses).toEqual([false, true, false, false, false]);
  });

  it('stops following coordinators that name each other', () => {
    const directory = new CoordinatorDirectory([A, B, C]);
    const dials = [B, A, B, A].map((address) => directory.next(leads(address)));
    expect(dials.map(({ isRedirect }) => isRedirect)).toEqual([true, true, true, false]);
    directory.next(ended);
    expect(directory.next(leads(A)).isRedirect).toBe(true);
  });

  it.each([
    ['the address that has just answered', A],
    ['plaintext', 'http://127.0.0.1:8080'],
    ['a text that is no address', 'leader'],
  ])('does not follow %s', (_name, address) => {
    const directory = new CoordinatorDirectory([A, B]);
    expect(directory.next(leads(address))).toMatchObject({ address: B, isRedirect: false });
  });

  it.each([
    ['http://127.0.0.1:8081', true],
    ['http://localhost:8081', true],
    ['http://[::1]:8081', true],
    ['http://10.0.0.1:8080', false],
    ['http://127.0.0.1.example.org:8080', false],
  ])('in plaintext follows only addresses of this machine: %s', (address, isFollowed) => {
    const directory = new CoordinatorDirectory(['http://127.0.0.1:8080']);
    expect(directory.next(leads(address)).isRedirect).toBe(isFollowed);
    expect(
      new CoordinatorDirectory(['http://127.0.0.1:8080'], [{ id: 'x', address }]).isSingle,
    ).toBe(!isFollowed);
  });

  it.each([
    ['after its session, whose coordinator may only restart', [{ ...ended, epoch: 7n }], 0n],
    ['after a failed dial of that leader', [{ ...ended, epoch: 7n }, unreachable], 7n],
    ['after a session that was silent', [silent], 7n],
    ['after a failed dial of another coordinator', [silent, unreachable], 7n],
    ['after a failed dial of a leader that was named', [leads(C, 9n), unreachable], 9n],
    ['after an answer of that leader', [silent, failed, failed, failed], 0n],
    ['after a session with the next leader', [silent, { ...ended, epoch: 8n }], 0n],
    ['before any session', [unreachable, unreachable, unreachable], 0n],
  ])('tells which leader the agent does not reach: %s', (_name, outcomes, epoch) => {
    const directory = new CoordinatorDirectory([A, B, C]);
    for (const outcome of outcomes) directory.next(outcome);
    expect(directory.unreachableLeader?.epoch ?? 0n).toBe(epoch);
  });

  it('dials the coordinators that the cluster has named after the configured ones', () => {
    const directory = new CoordinatorDirectory([A], [{ id: 'b', address: B }]);
    directory.setKnown([
      { id: 'c', address: C },
      { id: 'b', address: B },
      { id: 'a', address: A },
    ]);
    const dials = [failed, failed, failed].map((outcome) => directory.next(outcome).address);
    expect(dials).toEqual([C, B, A]);
  });
});

describe('mergeKnown', () => {
  const known = [
    { id: 'b', address: B },
    { id: 'a', address: A },
  ];

  it.each([
    { name: 'keeps a coordinator that is down', named: [{ id: 'a', address: A }], ids: ['a', 'b'] },
    {
      name: 'puts a new coordinator first',
      named: [{ id: 'c', address: C }],
      ids: ['c', 'b', 'a'],
    },
    { name: 'skips what is no address', named: [{ id: 'd', address: '' }], ids: ['b', 'a'] },
  ])('$name', ({ named, ids }) => {
    expect(mergeKnown(known, named).map(({ id }) => id)).toEqual(ids);
  });

  it('replaces the address of a coordinator that moved', () => {
    expect(mergeKnown(known, [{ id: 'b', address: C }])).toEqual([
      { id: 'b', address: C },
      { id: 'a', address: A },
    ]);
  });

  it('returns the same list when nothing changes', () => {
    expect(mergeKnown(known, known)).toBe(known);
  });

  it('forgets the oldest beyond sixteen', () => {
    const many = Array.from({ length: 20 }, (_, index) => ({ id: `c${index}`, address: A }));
    expect(
      many.reduce((all, each) => mergeKnown(all, [each]).slice(), known).map(({ id }) => id),
    ).toEqual(
      many
        .slice(4)
        .reverse()
        .map(({ id }) => id),
    );
  });
});
