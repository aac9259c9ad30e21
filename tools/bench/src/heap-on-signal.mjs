// Loaded into a measured process by `--import`, with `--expose-gc`: SIGUSR2 collects garbage and
// writes the bytes of the heap to stderr.
process.on('SIGUSR2', () => {
  globalThis.gc();
  const { heapUsed, external } = process.memoryUsage();
  process.stderr.write(`${JSON.stringify({ message: 'heap measured', heapUsed, external })}\n`);
});
