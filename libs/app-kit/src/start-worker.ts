import { Worker, type WorkerOptions } from 'node:worker_threads';

/**
 * Starts a thread from a module beside the caller: `<name>.mjs` in a bundle, `<name>.ts` when the
 * program runs from source.
 * @param callerUrl - `import.meta.url` of the caller.
 * @param name - Name of the module without its extension, also an entry point of the bundle.
 */
export function startWorker(callerUrl: string, name: string, options: WorkerOptions): Worker {
  if (!callerUrl.endsWith('.ts')) return new Worker(new URL(`./${name}.mjs`, callerUrl), options);
  // From source: tsx translates only what the main thread loads, unless it is registered again.
  const tsx = import.meta.resolve('tsx/esm/api');
  const source = new URL(`./${name}.ts`, callerUrl).href;
  const load = `import(${JSON.stringify(tsx)}).then((tsx) => (tsx.register(), import(${JSON.stringify(source)})));`;
  const { resourceLimits: _onlyForBundles, ...rest } = options;
  return new Worker(load, { ...rest, eval: true });
}
