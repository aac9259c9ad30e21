import { startRpcServer } from '@cloudless/rpc-server';
import { CoordinatorService, AgentService } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import * as http from 'node:http'; import * as http2 from 'node:http2';
const server = await startRpcServer({ host:'localhost', port: 0, clock: new ManualClock(), log: (()=>{const f=(l:string)=>(m:string,x:any)=>console.log('LOG',l,m,x); const l:any={error:f('e'),warn:f('w'),info:f('i'),debug:f('d')}; l.child=()=>l; return l})(),
 routes: (r)=>r.service(CoordinatorService,{createWorkload:(q)=>({name:q.name}), getWorkload:()=>{throw new Error('secret boom')}}), reflectedServices:[CoordinatorService, AgentService]});
const P='/cloudless.api.CoordinatorService/CreateWorkload';
async function h1(path:string, headers:any, body:any, method='POST'){ return new Promise<any>((res,rej)=>{ const r=http.request(server.url+path,{method,headers},(x)=>{let d='';x.on('data',c=>d+=c);x.on('end',()=>res([x.statusCode,x.headers['content-type'],d]));x.on('error',rej)}); r.on('error',rej); if(typeof body==='function') body(r); else r.end(body);}); }
async function h2(path:string, headers:any, body:any){ return new Promise<any>((res,rej)=>{ const s=http2.connect(server.url); const r=s.request({':method':'POST',':path':path,...headers}); let hd:any,tr:any,d=Buffer.alloc(0); r.on('response',h=>hd=h); r.on('trailers',t=>tr=t); r.on('data',c=>d=Buffer.concat([d,c])); r.on('close',()=>{s.destroy();res([hd?.[':status'],hd?.['content-type'],d.toString('latin1').slice(0,400),tr&&{...tr}, r.rstCode])}); r.on('error',e=>console.log('h2 err',e.message)); r.end(body)});}
const J={'content-type':'application/json'};
const t=async(n:string,p:Promise<any>)=>console.log(n, JSON.stringify(await p.catch(e=>'ERR '+e.message)));
await t('bad json',h1(P,J,'{"name":'));
await t('empty body',h1(P,J,''));
await t('unknown',h1(P,J,'{"name":"a","spec":{"image":"x","replicaz":2}}'));
await t('enum',h1(P,J,'{"name":"a","spec":{"rollout":{"strategy":"ROLING"}}}'));
await t('wrong type',h1(P,J,'{"name":"a","spec":{"replicas":"two"}}'));
await t('wrong type2',h1(P,J,'{"name":"a","spec":{"replicas":99999999999}}'));
await t('wrong type obj',h1(P,J,'{"name":"a","spec":{"ports":{"a":1}}}'));
await t('wrong type msg',h1(P,J,'{"name":"a","spec":"x"}'));
await t('nested list',h1(P,J,'{"name":"a","spec":{"ports":[{"containerPort":1},{"containerPort":"x"}]}}'));
await t('dur',h1(P,J,'{"name":"a","spec":{"rollout":{"minReadyDuration":"5"}}}'));
await t('array',h1(P,J,'[1]'));
await t('deep',h1(P,J,'{"spec":'.repeat(2000)+'1'+'}'.repeat(2000)));
await t('bad proto',h1(P,{'content-type':'application/proto'},Buffer.from([0x0a,0xff,1,2])));
const env=(b:Buffer)=>Buffer.concat([Buffer.from([0,0,0,0,b.length]),b]);
for (const ct of ['application/grpc','application/grpc+proto','application/grpc-web+proto','application/connect+proto']) await t('bad proto '+ct,h2(ct.includes('connect')?'/cloudless.api.CoordinatorService/WatchWorkloads':P,{'content-type':ct},env(Buffer.from([0x0a,0xff,1,2]))));
await t('bad env grpc',h2(P,{'content-type':'application/grpc'},Buffer.from([0,0,0,9,1,2])));
await t('grpc json unknown',h2(P,{'content-type':'application/grpc+json'},env(Buffer.from('{"replicaz":1}'))));
await t('5M len',h1(P,{...J},Buffer.alloc(5*1024*1024,32)));
await t('5M chunked',h1(P,{...J},(r:any)=>{ for(let i=0;i<80;i++) r.write(Buffer.alloc(65536,32)); r.end(); }));
await t('5M h2 json',h2(P,J,Buffer.alloc(5*1024*1024,32)));
{const b=Buffer.alloc(5*1024*1024+5,32); b[0]=0; b.writeUInt32BE(5*1024*1024,1); await t('5M grpc',h2(P,{'content-type':'application/grpc'},b)); await t('5M grpc-web h1',h1(P,{'content-type':'application/grpc-web+proto'},b));}
await t('noct',h1(P,{},'{}'));await t('GET',h1(P,{},undefined,'GET'));await t('bidi h1',h1('/cloudless.api.CoordinatorService/Session',{'content-type':'application/connect+json'},'{}'));
await t('404',h1('/x',{},undefined,'GET'));
await t('throws',h1('/cloudless.api.CoordinatorService/GetWorkload',J,'{}'));
await t('unimpl',h1('/cloudless.api.CoordinatorService/ScaleWorkload',J,'{}'));
await t('evil host',h1(P,{...J,host:'evil.com'},'{}'));
await t('evil origin',h1(P,{...J,origin:'http://evil.com'},'{}'));
await t('evil auth h2',h2(P,{...J,':authority':'evil.com'},'{}'));
await t('timeout bad',h1(P,{...J,'connect-timeout-ms':'x'},'{}'));
await t('timeout big',h1(P,{...J,'connect-timeout-ms':'9999999999'},'{}'));
await t('h2 large hdr',h2(P,{...J,'x-big':'a'.repeat(20000)},'{}'));
await t('h1 large hdr',h1(P,{...J,'x-big':'a'.repeat(20000)},'{}'));
await server.close(); console.log('closed');
